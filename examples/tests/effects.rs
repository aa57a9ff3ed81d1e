//! Four effects, and what each comes to if a service gives no answer (rules L5 to L9); and that each sample of the guide on side
//! effects stands in code that compiles.

#![allow(clippy::unwrap_used, reason = "a test fails where it is surprised")]

mod support;

use std::{
    collections::BTreeMap,
    future::Future,
    sync::{Arc, Mutex},
};

use everstep::{Error, Workflow};
use everstep_examples::effects::{
    Invoice, ServiceError, Services, Shared, pay, register, settle, transfer, write,
};
use everstep_testkit::{Run, TestKit};

const GUIDE: &str = include_str!("../../docs/guides/side-effects.md");
const CODE: [&str; 2] = [include_str!("../src/effects.rs"), include_str!("effects.rs")];

#[test]
fn every_sample_of_the_guide_is_code_that_compiles() {
    support::every_sample_is_in(GUIDE, &CODE, 7);
}

/// Does what it is asked, and gives no answer the first time; or fails as it is told.
#[derive(Debug, Default)]
struct Fake {
    done: Mutex<BTreeMap<String, u32>>,
    fails: Mutex<Vec<ServiceError>>,
}

impl Fake {
    fn failing(errors: &[ServiceError]) -> Arc<Self> {
        let fails = errors.iter().rev().cloned().collect();
        Arc::new(Self { fails: Mutex::new(fails), ..Self::default() })
    }

    /// How often anything was done.
    fn effects(&self) -> u32 {
        self.done.lock().unwrap().values().sum()
    }

    /// What is done once for a key is not done again; `None` knows no keys.
    fn act(&self, key: Option<&str>) -> Result<(), ServiceError> {
        let fails = self.fails.lock().unwrap().pop();
        if let Some(error @ (ServiceError::Unreachable | ServiceError::Refused(_))) = fails {
            return Err(error);
        }
        let mut done = self.done.lock().unwrap();
        let count = done.entry(key.unwrap_or_default().to_owned()).or_default();
        *count = if key.is_some() { 1 } else { *count + 1 };
        fails.map_or(Ok(()), Err)
    }
}

impl Services for Fake {
    fn charge(&self, key: &str, _: u64) -> Result<String, ServiceError> {
        self.act(Some(key)).map(|()| "receipt".to_owned())
    }

    fn send(&self, key: &str, to: &str, _: &str) -> Result<(), ServiceError> {
        self.act(Some(&format!("{to} {key}")))
    }

    fn find_contact(&self, _: &str) -> Result<Option<u64>, ServiceError> {
        Ok((self.effects() > 0).then_some(7))
    }

    fn create_contact(&self, _: &str, _: &str) -> Result<u64, ServiceError> {
        self.act(None).map(|()| 7)
    }

    fn transfer(&self, _: &str, _: u64) -> Result<String, ServiceError> {
        self.act(None).map(|()| "booked".to_owned())
    }
}

fn kit<F, T>(fake: &Arc<Fake>, workflow: fn(Workflow, Invoice, Shared) -> F) -> TestKit
where
    F: Future<Output = Result<T, Error>> + Send + 'static,
    T: serde::Serialize + 'static,
{
    let fake: Shared = fake.clone();
    TestKit::new()
        .workflow_fn("effect", move |cx: Workflow, invoice: Invoice| workflow(cx, invoice, fake.clone()))
}

fn invoice() -> Invoice {
    Invoice { number: 17, mail: "ann@example.org".to_owned(), cents: 12_50 }
}

/// Whoever has the bank's statement answers.
async fn answer(run: &Run, books: &Fake) {
    let question = run.asked().await.unwrap();
    if books.effects() > 0 {
        run.resolve_done(question.id, "booked").await.unwrap();
    } else {
        run.resolve_again(question.id).await.unwrap();
    }
}

#[test]
fn l05_a_payment_without_an_answer_is_repeated_under_its_key() {
    let fake = Fake::failing(&[ServiceError::NoAnswer, ServiceError::Unreachable]);
    kit(&fake, pay).run(async |kit| {
        let run = kit.start_instance("effect", &invoice()).await.unwrap();
        assert_eq!(run.result::<String>().await.unwrap(), "receipt");
    });
    assert_eq!(fake.effects(), 1);
}

#[test]
fn l04_a_payment_that_two_workflows_ask_for_is_made_once() {
    let fake = Fake::failing(&[ServiceError::NoAnswer]);
    let services: Shared = fake.clone();
    let kit = TestKit::new()
        .workflow_fn("settle", settle)
        .workflow_fn("pay", move |cx: Workflow, invoice: Invoice| pay(cx, invoice, services.clone()));
    kit.run(async |kit| {
        for _ in 0..2 {
            let run = kit.start_instance("settle", &invoice()).await.unwrap();
            assert_eq!(run.result::<String>().await.unwrap(), "receipt");
        }
    });
    assert_eq!(fake.effects(), 1);
}

#[test]
fn l05_a_mail_without_an_answer_is_repeated_under_its_key() {
    let fake = Fake::failing(&[ServiceError::NoAnswer]);
    kit(&fake, write).run(async |kit| {
        kit.start_instance("effect", &invoice()).await.unwrap().result::<()>().await.unwrap();
    });
    assert_eq!(fake.effects(), 1);
}

#[test]
fn l06_a_contact_that_is_found_is_not_made_again() {
    let fake = Fake::failing(&[ServiceError::NoAnswer]);
    kit(&fake, register).run(async |kit| {
        let run = kit.start_instance("effect", &invoice()).await.unwrap();
        assert_eq!(run.result::<u64>().await.unwrap(), 7);
    });
    assert_eq!(fake.effects(), 1);
}

#[test]
fn l07_a_transfer_without_an_answer_asks_and_what_is_decided_goes_on() {
    let fake = Fake::failing(&[ServiceError::NoAnswer]);
    let books = fake.clone();
    kit(&fake, transfer).run(async move |kit| {
        let run = kit.start_instance("effect", &invoice()).await.unwrap();
        answer(&run, &books).await;
        assert_eq!(run.result::<String>().await.unwrap(), "booked");
    });
    assert_eq!(fake.effects(), 1);
}

#[test]
fn l09_a_transfer_that_was_not_sent_is_repeated_and_one_that_is_refused_fails() {
    let fake =
        Fake::failing(&[ServiceError::Unreachable, ServiceError::Refused("too little money".to_owned())]);
    kit(&fake, transfer).run(async |kit| {
        let run = kit.start_instance("effect", &invoice()).await.unwrap();
        assert_eq!(run.error().await.unwrap().message(), "too little money");
    });
    assert_eq!(fake.effects(), 0);
}
