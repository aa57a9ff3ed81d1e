//! Proves how file, environment and flags are laid on each other, that all mistakes are named at once, and that the committed
//! reference page is the generated one. Not: what each setting does.

use everstep_cli::settings::{Role, Settings, Sources, reference};

fn environment(pairs: &[(&str, &str)]) -> Sources {
    let environment = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Sources { environment, ..Sources::default() }
}

#[test]
fn without_sources_there_are_defaults_and_they_are_good() {
    let settings = Settings::load(&Sources::default()).unwrap();
    assert_eq!(settings, Settings::default());
    assert_eq!(settings.validate(), Vec::<String>::new());
    assert_eq!(settings.validate_for(Role::Dev), Vec::<String>::new());
    assert_eq!(settings.validate_for(Role::Coordinator).len(), 2);
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("everstep.toml");
    std::fs::write(
        &file,
        "[postgres]\npool_max = 1\n[coordinator]\nwindow = 1\nbatch = 1\n[http]\nlisten = \"127.0.0.1:1\"\n",
    )
    .unwrap();
    let sources = Sources {
        file: Some(file),
        flags: vec![("http.listen", "127.0.0.1:3".to_owned())],
        ..environment(&[
            ("EVERSTEP_COORDINATOR__WINDOW", "2"),
            ("EVERSTEP_HTTP__LISTEN", "127.0.0.1:2"),
            ("EVERSTEP_COORDINATOR__NAMESPACES", r#"["a", "b"]"#),
            ("EVERSTEP_COORDINATOR__LIMITS__STEPS", "7"),
            ("EVERSTEP_OTLP__ENDPOINT", ""),
            ("HOME", "/root"),
        ])
    };
    let settings = Settings::load(&sources).unwrap();
    assert_eq!(
        (settings.postgres.pool_max, settings.coordinator.window, settings.coordinator.batch),
        (1, 2, 1)
    );
    assert_eq!(settings.http.listen.port(), 3);
    assert_eq!(settings.coordinator.namespaces.len(), 2);
    assert_eq!(settings.coordinator.limits.steps, 7);
    assert_eq!(settings.otlp.endpoint, None);
}

#[test]
fn every_unknown_variable_is_named() {
    let sources = environment(&[
        ("EVERSTEP_FOO", "1"),
        ("EVERSTEP_POSTGRES__URI", "x"),
        ("EVERSTEP_TEST_AMQP_URL", "x"),
    ]);
    let problems = Settings::load(&sources).unwrap_err();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("EVERSTEP_FOO"), "{problems:?}");
    assert!(problems[1].contains("EVERSTEP_POSTGRES__URI"), "{problems:?}");
}

#[test]
fn a_value_of_the_wrong_type_is_named_by_its_setting() {
    let problems = Settings::load(&environment(&[("EVERSTEP_COORDINATOR__WINDOW", "many")])).unwrap_err();
    assert!(problems[0].contains("window") && problems[0].contains("many"), "{problems:?}");
}

#[test]
fn no_problem_shows_a_value_that_may_be_secret() {
    let mut paths = Vec::new();
    may_be_secret(&serde_json::to_value(Settings::default()).unwrap(), "", &mut paths);
    paths.extend(
        ["COORDINATOR__RETENTION_OF__fulfil", "COORDINATOR__RETENTION_OF__fulfil__COMPLETE"]
            .map(str::to_owned),
    );
    assert!(paths.len() > 10 && paths.iter().any(|path| path == "AMQP__URL"), "{paths:?}");
    let mut refused = 0;
    for path in paths {
        for value in [
            "amqp://u:s3cret-word@h",
            "s3cret-word",
            "[\"s3cret-word\"]",
            "{s3=\"s3cret-word\"}",
            "19450508",
            "true",
        ] {
            let name = format!("EVERSTEP_{path}");
            let Err(problems) = Settings::load(&environment(&[(&name, value)])) else { continue };
            let shown = problems.join(" ");
            assert!(!shown.contains("s3cret-word") && !shown.contains("19450508"), "{name}={value}: {shown}");
            let first = path.split("__").next().unwrap().to_lowercase();
            assert!(shown.to_lowercase().contains(&first), "{name}={value}: {shown}");
            refused += 1;
        }
    }
    assert!(refused > 40, "{refused}");
    let plain = Settings::load(&environment(&[("EVERSTEP_AMQP", "amqp://u:s3cret-word@h")])).unwrap_err();
    assert_eq!(plain, ["amqp: expected a table, found a text in environment"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("broken.toml");
    std::fs::write(&file, "[amqp]\nurl = 'amqp://u:s3cret-word@h\n").unwrap();
    let broken = Settings::load(&Sources { file: Some(file), ..Sources::default() }).unwrap_err();
    assert!(broken[0].contains("line 2") && broken[0].contains("broken.toml"), "{broken:?}");
    assert!(!broken.join(" ").contains("s3cret-word"), "{broken:?}");
}

/// Where a table or a text is a setting: what belongs there may bear a password, and so may what is put there by mistake.
fn may_be_secret(value: &serde_json::Value, path: &str, paths: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(members) => {
            if !path.is_empty() {
                paths.push(path.to_owned());
            }
            for (name, value) in members {
                let path = if path.is_empty() {
                    name.to_uppercase()
                } else {
                    format!("{path}__{}", name.to_uppercase())
                };
                may_be_secret(value, &path, paths);
            }
        }
        serde_json::Value::String(_) | serde_json::Value::Null => paths.push(path.to_owned()),
        serde_json::Value::Bool(_) | serde_json::Value::Number(_) | serde_json::Value::Array(_) => {}
    }
}

#[test]
fn names_of_ones_own_keep_their_case() {
    let name = "EVERSTEP_COORDINATOR__RETENTION_OF__fulfil__COMPLETE";
    let sources = environment(&[(name, "1000"), (&name.replace("COMPLETE", "FAILED"), "2000")]);
    let settings = Settings::load(&sources).unwrap();
    let (workflow, retention) = settings.coordinator.retention_of.iter().next().unwrap();
    assert_eq!((workflow.as_str(), retention.complete.0, retention.failed.0), ("fulfil", 1_000, 2_000));
    let name = "EVERSTEP_COORDINATOR__RETENTION_OF__FULFIL";
    let problems = Settings::load(&environment(&[(name, "{complete=1, failed=1}")])).unwrap_err();
    assert!(problems[0].contains("coordinator.retention_of"), "no workflow has such a name: {problems:?}");
}

#[test]
fn all_problems_come_together() {
    let sources = environment(&[
        ("EVERSTEP_POSTGRES__POOL_MAX", "0"),
        ("EVERSTEP_COORDINATOR__WINDOW", "0"),
        ("EVERSTEP_LOG__LEVEL", "info,["),
        ("EVERSTEP_OTLP__ENDPOINT", "nowhere"),
        ("EVERSTEP_AMQP__URL", "http://mq"),
    ]);
    let problems = Settings::load(&sources).unwrap().validate();
    for part in ["postgres.pool_max", "coordinator.window", "log.level", "otlp.endpoint", "amqp.url"] {
        assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:?}");
    }
}

#[test]
fn the_reference_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/settings.md");
    let committed = std::fs::read_to_string(path).unwrap_or_default();
    let advice =
        "write it anew: cargo run -p everstep-cli -- settings --reference > docs/reference/settings.md";
    assert!(committed == reference::page(), "docs/reference/settings.md differs from the types; {advice}");
}
