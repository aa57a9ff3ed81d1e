//! The settings of the process, and the process as far as it needs no broker.

use std::process::Command;

use everstep_http::worker::process::{ProcessSettings, Sources};

fn environment(pairs: &[(&str, &str)]) -> Sources {
    let environment = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Sources { environment, ..Sources::default() }
}

#[test]
fn flags_win_over_the_environment_and_that_over_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("worker.toml");
    let text = "[amqp]\nurl = 'amqp://a'\n[worker]\nslots = 1\nprefetch = 1\n[metrics]\nlisten = '127.0.0.1:1'\n\
                [calls]\nhosts = ['api.example.com']\n[secrets.hosts]\nA = ['*.example.com']\n";
    std::fs::write(&file, text).unwrap();
    let sources = Sources {
        file: Some(file),
        flags: vec![("metrics.listen", "127.0.0.1:3".to_owned())],
        ..environment(&[
            ("EVERSTEP_WORKER__SLOTS", "2"),
            ("EVERSTEP_METRICS__LISTEN", "127.0.0.1:2"),
            ("EVERSTEP_CALLS__NETWORKS", r#"["10.0.0.0/8", "::1"]"#),
            ("EVERSTEP_CALLS__TIMEOUT", "1000"),
            ("EVERSTEP_SECRET_PAYMENTS", "sk-live-1234"),
            ("EVERSTEP_SECRET_A", "sk-live-5678"),
            ("EVERSTEP_TEST_AMQP_URL", "x"),
        ])
    };
    let settings = ProcessSettings::load(&sources).unwrap();
    assert_eq!(settings.validate(), Vec::<String>::new());
    assert_eq!((settings.worker.slots, settings.worker.prefetch), (2, 1));
    assert_eq!(settings.metrics.listen.unwrap().port(), 3);
    assert_eq!((settings.calls.networks.len(), settings.calls.timeout.0), (2, 1_000));
    assert_eq!(settings.secrets.hosts.len(), 1);
    let shown = format!("{settings:?} {:?} {sources:?}", settings.secrets());
    assert!(!shown.contains("sk-live") && shown.contains("PAYMENTS"), "{shown}");
}

#[test]
fn what_cannot_be_used_is_named() {
    for (name, value, says) in [
        ("EVERSTEP_FOO", "1", "EVERSTEP_FOO"),
        ("EVERSTEP_CALLS__HOST", "a.example", "EVERSTEP_CALLS__HOST"),
        ("EVERSTEP_CALLS__HOSTS", r#"["a/b"]"#, "a/b"),
        ("EVERSTEP_CALLS__NETWORKS", r#"["10.0.0.0/99"]"#, "10.0.0.0/99"),
        ("EVERSTEP_WORKER__SLOTS", "many", "many"),
    ] {
        let problems = ProcessSettings::load(&environment(&[(name, value)])).unwrap_err();
        assert!(problems.iter().any(|problem| problem.contains(says)), "{name}: {problems:?}");
    }
    let all = environment(&[
        ("EVERSTEP_WORKER__SLOTS", "0"),
        ("EVERSTEP_WORKER__POOLS", r#"["A b"]"#),
        ("EVERSTEP_CALLS__TIMEOUT", "0"),
        ("EVERSTEP_LOG__LEVEL", "info,["),
    ]);
    let problems = ProcessSettings::load(&all).unwrap().validate();
    for part in ["amqp.url", "worker.slots", "worker.pools", "calls.timeout", "log.level"] {
        assert!(problems.iter().any(|problem| problem.contains(part)), "{part}: {problems:?}");
    }
}

#[test]
fn l03_a_binding_of_a_secret_keeps_its_name_and_is_of_a_secret() {
    let hosts = r#"["payments.example.com"]"#;
    let secret = ("EVERSTEP_SECRET_Payments", "sk-live-1234");
    let amqp = ("EVERSTEP_AMQP__URL", "amqp://a");
    let bound = |name: &str| {
        let name = format!("EVERSTEP_SECRETS__HOSTS__{name}");
        ProcessSettings::load(&environment(&[amqp, secret, (&name, hosts)])).unwrap()
    };
    assert_eq!(bound("Payments").validate(), Vec::<String>::new());
    assert!(bound("Payments").secrets.hosts.contains_key("Payments"));
    for other in ["PAYMENTS", "payments", "GONE"] {
        let problems = bound(other).validate();
        assert!(problems.len() == 1 && problems[0].contains(other), "{problems:?}");
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("secrets")).unwrap();
    std::fs::write(dir.path().join("secrets/A.b"), "sk-live-5678").unwrap();
    let file = dir.path().join("worker.toml");
    let text = format!(
        "amqp.url = 'amqp://a'\n[secrets]\ndirectory = '{}/secrets'\nhosts = {{ 'A.b' = {hosts} }}\n",
        dir.path().display()
    );
    std::fs::write(&file, text).unwrap();
    let of_file = ProcessSettings::load(&Sources { file: Some(file), ..Sources::default() }).unwrap();
    assert_eq!(of_file.validate(), Vec::<String>::new());
}

#[test]
fn l03_no_problem_shows_what_may_be_secret() {
    for (name, value) in [
        ("EVERSTEP_AMQP", "amqp://u:s3cret-word@h"),
        ("EVERSTEP_AMQP__URL", "[\"s3cret-word\"]"),
        ("EVERSTEP_SECRETS", "s3cret-word"),
        ("EVERSTEP_SECRETS__HOSTS", "s3cret-word"),
        ("EVERSTEP_SECRETS__HOSTS__PAYMENTS", "s3cret-word"),
        ("EVERSTEP_SECRETS__HOSTS__PAYMENTS", "[\"https://u:s3cret-word@h/x\"]"),
        ("EVERSTEP_CALLS__HOSTS", "[\"https://u:s3cret-word@h\"]"),
        ("EVERSTEP_CALLS__HOSTS", "https://u:s3cret-word@h"),
        ("EVERSTEP_METRICS__LISTEN", "s3cret-word"),
    ] {
        let problems = ProcessSettings::load(&environment(&[(name, value)])).unwrap_err().join(" ");
        assert!(!problems.contains("s3cret-word"), "{name}: {problems}");
        let first = name["EVERSTEP_".len()..].split("__").next().unwrap().to_lowercase();
        assert!(problems.contains(&first), "{name}: {problems}");
    }
    let unusable = environment(&[("EVERSTEP_AMQP__URL", "amqp://a"), ("EVERSTEP_SECRET_A", " s3cret-word")]);
    let problems = ProcessSettings::load(&unusable).unwrap().validate();
    assert!(
        problems.len() == 1 && problems[0].contains("the secret A") && !problems[0].contains("s3cret-word")
    );
}

#[test]
fn the_guide_lists_every_setting_with_its_default() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/http-steps.md");
    let guide = std::fs::read_to_string(path).unwrap();
    let mut names = Vec::new();
    leaves(&serde_json::to_value(ProcessSettings::default()).unwrap(), "", &mut names);
    assert!(names.len() > 20, "{names:?}");
    for (name, default) in names {
        let row = guide.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("{name} is not in the guide"));
        assert!(row.contains(&format!("| {default} |")), "{name}: {default}: {row}");
    }
}

fn leaves(value: &serde_json::Value, path: &str, names: &mut Vec<(String, String)>) {
    match value {
        serde_json::Value::Object(members) if !members.is_empty() => {
            for (name, value) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(value, &path, names);
            }
        }
        serde_json::Value::Null => names.push((path.to_owned(), "none".to_owned())),
        value => names.push((path.to_owned(), format!("`{value}`"))),
    }
}

#[test]
fn the_process_checks_its_settings() {
    let run = |url: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_everstep-http-worker"));
        command.env_clear().args(["--check", "--host", "api.example.com"]);
        if let Some(url) = url {
            command.env("EVERSTEP_AMQP__URL", url);
        }
        command.output().unwrap()
    };
    assert!(run(Some("amqp://localhost")).status.success());
    let refused = run(None);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("amqp.url"));
}
