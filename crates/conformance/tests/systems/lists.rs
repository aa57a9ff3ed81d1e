//! One operation on a list of instances, over the HTTP API: what is there, what is not, what is there twice, what is no id.

use everstep::{Error, Registry, Workflow};
use everstep_system_tests::on_both;
use serde_json::{Value, json};

use crate::api::Api;

const LIST: &str = "/v1/default/workflows/sleeper/instances:operate";

fn sleeper() -> Registry {
    Registry::new().workflow_fn("sleeper", |cx: Workflow, nap: String| async move {
        cx.sleep("nap", nap).await?;
        Ok::<_, Error>(())
    })
}

/// What was said of each id, in order.
async fn outcomes(api: &Api, body: Value) -> Vec<(String, String)> {
    let (status, text) = api.ask("POST", LIST, &body.to_string()).await;
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    let said = |result: &Value, field: &str| result[field].as_str().unwrap().to_owned();
    answer["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| (said(result, "id"), said(result, "outcome")))
        .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(id, outcome)| ((*id).to_owned(), (*outcome).to_owned())).collect()
}

on_both! {
    async fn b091_b125_a_list_deletes_what_is_there_and_tells_of_the_rest(setup) {
        let world = setup.serve(sleeper()).await;
        let api = Api::of(&world).await;
        for id in ["a", "b", "c"] {
            world.begin("sleeper", id, "1ms").await;
            world.end("sleeper", id).await;
        }
        let ids = ["b", "missing", "a", "b", "c", "missing"];
        let deleted = outcomes(&api, json!({"operation": "delete", "ids": ids})).await;
        let expected = [("b", "done"), ("missing", "not_found"), ("a", "done"), ("b", "done"), ("c", "done"), ("missing", "not_found")];
        assert_eq!(deleted, pairs(&expected), "what is there twice is deleted once and told twice");
        for id in ["a", "b", "c"] {
            assert_eq!(world.view("sleeper", id).await, None);
            // Its id is free.
            world.begin("sleeper", id, "1 day").await;
        }
        let open = outcomes(&api, json!({"operation": "delete", "ids": ["a", "b"]})).await;
        assert_eq!(open, pairs(&[("a", "not_allowed"), ("b", "not_allowed")]));
        let ended_first = outcomes(&api, json!({"operation": "delete", "ids": ["a", "b"], "terminate": true})).await;
        assert_eq!(ended_first, pairs(&[("a", "done"), ("b", "done")]));
    }

    async fn b092_a_missing_id_that_is_there_twice_is_told_twice(setup) {
        let world = setup.serve(sleeper()).await;
        let api = Api::of(&world).await;
        let told = outcomes(&api, json!({"operation": "terminate", "ids": ["x", "x"]})).await;
        assert_eq!(told, pairs(&[("x", "not_found"), ("x", "not_found")]));
    }

    async fn b094_failures_come_one_by_one_in_the_order_of_the_ids(setup) {
        let world = setup.serve(sleeper()).await;
        let api = Api::of(&world).await;
        for (id, nap) in [("ended", "1ms"), ("open-1", "1 day"), ("open-2", "1 day")] {
            world.begin("sleeper", id, nap).await;
        }
        world.end("sleeper", "ended").await;
        let body = json!({"operation": "terminate", "reason": "recalled", "ids": ["open-2", "ended", "nobody", "open-1"]});
        let (_, text) = api.ask("POST", LIST, &body.to_string()).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        let expected = json!([
            {"id": "open-2", "outcome": "done", "retry_safe": true},
            {"id": "ended", "outcome": "not_allowed", "status": "complete", "retry_safe": false,
                "message": "terminate is not possible, the instance is complete"},
            {"id": "nobody", "outcome": "not_found", "retry_safe": true,
                "message": "there is no instance nobody of workflow sleeper"},
            {"id": "open-1", "outcome": "done", "retry_safe": true},
        ]);
        assert_eq!(answer["results"], expected);
        assert_eq!(world.end("sleeper", "open-1").await.status, "terminated");
    }

    async fn b095_no_ids_too_many_and_a_bad_one_are_refused_and_nothing_is_done(setup) {
        let world = setup.serve(sleeper()).await;
        let api = Api::of(&world).await;
        world.begin("sleeper", "a", "1 day").await;
        let refused = async |body: Value, code: &str, part: &str| {
            let problem = api.refused("POST", LIST, &body.to_string(), 400..500).await;
            let detail = problem["detail"].as_str().unwrap();
            assert_eq!(problem["code"], json!(code), "{problem}");
            assert!(detail.contains(part), "{detail}");
        };
        let terminate = |ids: Vec<&str>| json!({"operation": "terminate", "ids": ids});
        refused(terminate(vec![]), "ids", "ids has 0 items").await;
        refused(json!({"operation": "terminate"}), "ids", "ids has 0 items").await;
        refused(terminate(vec!["a"; 1_001]), "ids", "ids has 1001 items and is refused, it must have 1 to 1000").await;
        for bad in ["", "a b", "a/b", "\n", &"x".repeat(101)] {
            refused(terminate(vec!["a", bad]), "name", "ids[1] is refused, and nothing was done").await;
        }
        refused(json!({"ids": ["a"]}), "body", "operation").await;
        refused(json!({"operation": "terminate", "ids": ["a"], "reuse": true}), "body", "reuse").await;
        let (status, text) = api.ask("POST", LIST, r#"{"operation":"terminate","ids":["a"],"id":"a"}"#).await;
        assert!(status == 400 && text.contains("unknown field `id`"), "{text}");
        assert!(world.view("sleeper", "a").await.unwrap().ended_at.is_none());
        let most: Vec<String> = (0..1_000).map(|number| format!("n-{number}")).collect();
        let told = outcomes(&api, json!({"operation": "terminate", "ids": most})).await;
        assert_eq!(told.len(), 1_000);
        assert!(told.iter().all(|(_, outcome)| outcome == "not_found"));
    }
}
