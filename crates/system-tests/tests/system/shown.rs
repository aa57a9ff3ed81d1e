//! What instances show of themselves, on whole systems: rule P37.

use everstep::{Error, Registry, Step, Workflow};
use everstep_broker::Properties;
use everstep_protocol::Attribute;
use everstep_store::{Filter, InstanceView, StatusWord};
use everstep_system_tests::{World, on_both};

fn attribute(words: &str) -> Attribute {
    Attribute::from_words(words).expect("a good attribute")
}

async fn found(world: &World, words: &[&str]) -> Vec<String> {
    let attributes = words.iter().map(|words| attribute(words)).collect();
    let filter = Filter { attributes, ..Filter::default() };
    let page = world.store().instances(&filter, None, 100).await.expect("the store answers");
    page.rows.iter().map(|row| row.id.to_string()).collect()
}

fn packing() -> Registry {
    Registry::new().workflow_fn("pack", |cx: Workflow, (): ()| async move {
        cx.publish(&"packing")?;
        cx.set_attribute("stage", "packing")?;
        cx.step("pack", (), async |_: Step, (): ()| Ok::<_, Error>(())).await?;
        cx.publish(&("packed", cx.attribute::<String>("customer")))?;
        cx.set_attribute("stage", "packed")?;
        cx.event::<()>("go").timeout("1 min").await?;
        cx.set_attribute("stage", "gone")?;
        Ok::<_, Error>(())
    })
}

fn state(view: &InstanceView) -> Option<&str> {
    view.state.as_ref().map(|(_, state)| state.as_str())
}

on_both! {
    async fn p37_state_and_attributes_are_read_without_a_worker_and_after_the_end(setup) {
        let mut world = setup.serve(packing()).await;
        let body = r#"{"workflow":"pack","id":"one","attributes":{"customer":"c-17","vip":true}}"#;
        world.publish(body, Properties { content_type: Some("application/json".to_owned()), ..Properties::default() }).await;
        world.until("pack", "one", "it waits", |view| view.status == StatusWord::Waiting).await;
        world.begin("pack", "other", &()).await;
        world.until("pack", "other", "it waits", |view| view.status == StatusWord::Waiting).await;
        world.crash_worker(0).await;
        let view = world.view("pack", "one").await.expect("it is there");
        assert_eq!(state(&view), Some(r#"["packed","c-17"]"#));
        assert_eq!(found(&world, &["stage=packed"]).await, ["other", "one"]);
        assert_eq!(found(&world, &["stage=packed", "vip=true"]).await, ["one"]);
        world.add_worker(packing()).await;
        world.send("pack", "one", ("1", "go"), &()).await;
        world.end("pack", "one").await;
        let view = world.view("pack", "one").await.expect("it is there");
        assert_eq!(state(&view), Some(r#"["packed","c-17"]"#), "the run that came after has published the same");
        assert_eq!(found(&world, &["stage=gone"]).await, ["one"]);
        assert_eq!(found(&world, &["stage=packed"]).await, ["other"]);
    }
}
