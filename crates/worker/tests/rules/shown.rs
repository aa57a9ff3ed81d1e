//! What a body publishes and sets, as its worker reports it (rule P37). Not: what is written; see the engine's and the store's rules.

use everstep_protocol::message::{Report, Then, WorkerItem};
use everstep_sdk::{Error, Next, Registry, Step, Workflow};

use crate::rig::Rig;

async fn same(_step: Step, n: u64) -> Result<u64, Error> {
    Ok(n)
}

/// What the reports that are under way show.
fn shows(rig: &Rig) -> Vec<(Option<String>, Vec<String>)> {
    let of = |report: &Report| {
        let attribute = |attribute: &everstep_protocol::Attribute| {
            let value = attribute.value.as_ref().map_or("gone", |value| value.as_json());
            format!("{}={value}", attribute.name)
        };
        let attributes = report.attributes.iter().map(attribute).collect();
        (report.state.as_ref().map(|state| state.as_str().to_owned()), attributes)
    };
    let reports = rig.out.iter().filter_map(|item| match item {
        WorkerItem::Report(report) => Some(of(report)),
        _ => None,
    });
    reports.collect()
}

fn packing() -> Registry {
    Registry::new().workflow_fn("w", |cx: Workflow, items: u64| async move {
        cx.set_attribute("stage", "packing")?;
        for item in 0..items {
            cx.publish(&(item, items))?;
            cx.step("pack", item, same).await?;
        }
        cx.publish(&"packed")?;
        cx.set_attribute("items", items)?;
        cx.remove_attribute("stage")?;
        cx.sleep("pause", "1 hour").await?;
        Ok::<_, Error>(())
    })
}

#[test]
fn p37_what_is_published_travels_with_the_next_report_and_has_none_of_its_own() {
    let mut rig = Rig::with_input(packing(), 2);
    rig.claim();
    rig.receive();
    rig.turn();
    assert_eq!(rig.out.len(), 0, "a step runs, and nothing is reported yet");
    rig.attempt();
    rig.turn();
    let (stage, text) = (vec!["stage=\"packing\"".to_owned()], |text: &str| Some(text.to_owned()));
    // The body has seen the result, and published again, before the report left.
    assert_eq!(shows(&rig), [(text("[1,2]"), stage)]);
    rig.exchange();
    rig.attempt();
    rig.turn();
    let last = vec!["items=2".to_owned(), "stage=gone".to_owned()];
    assert_eq!(shows(&rig), [(text("\"packed\""), last)]);
    let reports = rig.reports;
    rig.run();
    assert_eq!((reports, rig.reports), (2, 3), "the sleep's end, and nothing more");
}

#[test]
fn p37_a_body_that_is_run_again_shows_the_same() {
    let mut rig = Rig::with_input(packing(), 2);
    rig.claim();
    rig.exchange();
    rig.attempt();
    rig.exchange();
    rig.crash(false);
    rig.claim();
    rig.exchange();
    rig.attempt();
    rig.turn();
    let all = vec!["items=2".to_owned(), "stage=gone".to_owned()];
    assert_eq!(shows(&rig), [(Some("\"packed\"".to_owned()), all)], "nothing that was shown before is lost");
    rig.output::<()>();
}

#[test]
fn p37_attributes_go_on_in_the_next_generation_and_can_be_read() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, first: bool| async move {
        if first {
            cx.set_attribute("region", "eu")?;
            cx.set_attribute("n", 1)?;
            return cx.continue_as_new(false);
        }
        cx.remove_attribute("n")?;
        Ok::<_, Error>(Next::Done((cx.attribute::<String>("region"), cx.attribute::<u64>("n"))))
    });
    let mut rig = Rig::with_input(registry, true);
    let (region, n) = rig.output::<(Option<String>, Option<u64>)>();
    assert_eq!((region.as_deref(), n), (Some("eu"), None));
}

#[test]
fn p37_what_breaks_a_rule_is_an_error_and_changes_nothing() {
    let registry = Registry::new().workflow_fn("w", |cx: Workflow, (): ()| async move {
        let mut wrong = Vec::new();
        let mut told = |result: Result<(), Error>| {
            if let Err(error) = result {
                wrong.push(error.message().to_owned());
            }
        };
        // Two of the bytes are quotes.
        told(cx.publish(&"x".repeat((16 << 10) - 2)));
        told(cx.publish(&"x".repeat((16 << 10) - 1)));
        told(cx.publish(&f64::NAN));
        told(cx.set_attribute("a b", 1));
        told(cx.set_attribute("long", "x".repeat(257)));
        told(cx.set_attribute("nan", f64::NAN));
        for n in 0..32 {
            told(cx.set_attribute(format!("a{n}"), n));
        }
        told(cx.set_attribute("a0", true));
        told(cx.set_attribute("one-more", 1));
        Ok::<_, Error>(wrong)
    });
    let mut rig = Rig::new(registry);
    rig.claim();
    rig.receive();
    rig.turn();
    match &rig.out[0] {
        WorkerItem::Report(Report { state: Some(state), attributes, then: Then::End(_), .. }) => {
            assert_eq!((state.len(), attributes.len()), (16 << 10, 32));
        }
        other => panic!("{other:?}"),
    }
    let wrong = rig.output::<Vec<String>>();
    assert_eq!(wrong.len(), 6, "{wrong:?}");
    assert!(wrong[0].contains("16385 bytes of JSON, the limit is 16384"), "{}", wrong[0]);
    assert!(wrong[2].contains("\"a b\""), "{}", wrong[2]);
    assert!(wrong[3].contains("attribute \"long\""), "{}", wrong[3]);
    assert!(wrong[5].contains("at most 32"), "{}", wrong[5]);
}
