//! Calls with a resolver in the test's hand, and steps to make them from.

use std::{
    collections::HashMap,
    io,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use everstep_http::{
    CallError, Request, Response, Sent,
    worker::{HttpCalls, Metrics, Resolve, Resolving, Secrets, Settings},
};
use everstep_protocol::{Attempt, CallKind, Policy};
use everstep_sdk::{Error, Step, host::StepInfo};

pub(crate) const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// Each name has answers that come one after the other; the last stays.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(Arc<Mutex<HashMap<String, Vec<Vec<IpAddr>>>>>);

impl Names {
    pub(crate) fn with(self, name: &str, answers: &[&[&str]]) -> Self {
        let answers: Vec<Vec<IpAddr>> =
            answers.iter().map(|answer| answer.iter().map(|ip| ip.parse().unwrap()).collect()).collect();
        self.0.lock().unwrap().insert(name.to_owned(), answers);
        self
    }
}

impl Resolve for Names {
    fn resolve(&self, name: String) -> Resolving {
        let mut names = self.0.lock().unwrap();
        let answer = match names.get_mut(&name) {
            None => Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
            Some(answers) if answers.len() > 1 => Ok(answers.remove(0)),
            Some(answers) => Ok(answers[0].clone()),
        };
        Box::pin(async move { answer })
    }
}

/// Calls to everything on 127.0.0.1 under names of the test.
pub(crate) struct Rig {
    pub(crate) settings: Settings,
    pub(crate) secrets: Secrets,
    pub(crate) names: Names,
    pub(crate) metrics: Metrics,
}

impl Rig {
    /// Allows these ports of `service.test`, and the address 127.0.0.1.
    pub(crate) fn new(ports: &[u16]) -> Self {
        let hosts = ports.iter().map(|port| format!("http://service.test:{port}").parse().unwrap());
        let settings = Settings {
            hosts: hosts.collect(),
            networks: vec!["127.0.0.1".parse().unwrap()],
            ..Settings::default()
        };
        let names = Names::default().with("service.test", &[&["127.0.0.1"]]);
        Self { settings, secrets: Secrets::default(), names, metrics: Metrics::default() }
    }

    pub(crate) fn allow(mut self, host: &str) -> Self {
        self.settings.hosts.push(host.parse().unwrap());
        self
    }

    pub(crate) fn calls(&self) -> HttpCalls {
        let names = Arc::new(self.names.clone());
        HttpCalls::with(&self.settings, self.secrets.clone(), names, self.metrics.clone()).unwrap()
    }

    /// One attempt.
    pub(crate) async fn call(&self, request: Request) -> Result<Response, Error> {
        self.calls().call(&step(1), request).await
    }

    /// One attempt that fails.
    pub(crate) async fn fails(&self, request: Request) -> Failed {
        match self.call(request).await {
            Ok(response) => panic!("it gave {response:?}"),
            Err(error) => Failed::of(&error),
        }
    }
}

/// An error, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) name: String,
    pub(crate) message: String,
    pub(crate) permanent: bool,
    pub(crate) sent: Sent,
    pub(crate) status: Option<u16>,
    pub(crate) body: Option<String>,
    pub(crate) retry_after_ms: Option<u64>,
}

impl Failed {
    pub(crate) fn of(error: &Error) -> Self {
        let CallError { sent, status, body } = CallError::of(error).unwrap();
        assert_eq!(
            error.is_without_effect(),
            sent == Sent::No,
            "the mark says what the data says: {error:?}"
        );
        Self {
            name: error.name().to_owned(),
            message: error.message().to_owned(),
            permanent: error.is_permanent(),
            sent,
            status,
            body,
            retry_after_ms: error.as_ref().retry_after.map(|delay| delay.0),
        }
    }

    /// Name, whether it is permanent, and whether anything was sent.
    pub(crate) fn kind(&self) -> (&str, bool, Sent) {
        (&self.name, self.permanent, self.sent)
    }
}

/// An attempt of a step whose key is [`KEY`].
pub(crate) fn step(attempt: u32) -> Step {
    let info = StepInfo {
        namespace: "default".parse().unwrap(),
        workflow: "shop".parse().unwrap(),
        instance: "one".parse().unwrap(),
        kind: CallKind::Step,
        name: "call".parse().unwrap(),
        count: 1,
        attempt: Attempt(attempt),
        key: KEY.parse().unwrap(),
        undoes: None,
        policy: Policy::default(),
    };
    Step::new(info, Arc::new(drop), None).0
}
