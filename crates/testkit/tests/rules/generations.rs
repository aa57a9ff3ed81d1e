//! Continue-as-new in the kit (rule P36).

use everstep::{Error, Next, Step, Workflow};
use everstep_testkit::TestKit;

async fn add(_: Step, (sum, n): (u64, u64)) -> Result<u64, Error> {
    Ok(sum + n)
}

/// One round a generation, a day after the other.
async fn rounds(cx: Workflow, (left, sum): (u64, u64)) -> Result<Next<(u64, u64), u64>, Error> {
    let sum = cx.step("add", (sum, left), add).await?;
    cx.sleep("until tomorrow", "1 day").await?;
    if left > 1 { cx.continue_as_new((left - 1, sum)) } else { Ok(Next::Done(sum)) }
}

#[test]
fn p36_generations_run_in_the_kit_and_are_replayed() {
    TestKit::new().workflow_fn("rounds", rounds).run(async |kit| {
        let run = kit.start_instance("rounds", &(30u64, 0u64)).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 30 * 31 / 2);
        let view = run.view().await.unwrap();
        assert_eq!((view.generation.0, view.steps), (30, 1));
    });
}
