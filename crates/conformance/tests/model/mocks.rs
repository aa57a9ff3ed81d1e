//! What tests of users rest on: mocks that outlive a crash, and statuses that can be waited for.

use everstep::{Error, Retry, Step, Workflow};
use everstep_testkit::{Mock, Status, TestKit};

/// Two attempts fail, one hangs until its timeout, the fourth is real; a crash in between begins nothing anew.
#[test]
fn b144_mocked_failures_are_counted_by_attempt_also_over_a_crash() {
    let kit = TestKit::new().workflow_fn("one", |cx: Workflow, (): ()| async move {
        let real = async |step: Step, (): ()| Ok::<_, Error>(step.attempt());
        cx.step("s", (), real).retry(Retry::constant("1 hour")).timeout("1 min").await
    });
    kit.time_by_hand().run(async |kit| {
        kit.mock(Mock::step("s").fails(2, Error::failed("mocked")).times_out(1)).unwrap();
        let run = kit.start_instance("one", &()).await.unwrap();
        run.reaches(Status::Waiting).await.unwrap();
        kit.crash_worker();
        kit.advance("4 hours").await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), 4);
    });
}
