//! Order fulfilment in the test kit: what becomes of an order whose payment service is slow, refuses, or is away, and that a
//! crash of the worker changes nothing, wherever it comes. Not: the payment service itself, which is mocked here and real in
//! the demo's own tests.

use everstep::Error;
use everstep_examples::{
    fulfil::{Customer, LABEL_POOL, Line, Order, Receipt, registry},
    orders,
};
use everstep_testkit::{Kit, KitError, Mock, Status, TestKit, crash_everywhere};

fn kit() -> TestKit {
    TestKit::new().registry(registry()).pool(LABEL_POOL)
}

fn order() -> Order {
    Order {
        customer: Customer { name: "Ada".to_owned(), email: Some("ada@example.org".to_owned()) },
        lines: vec![Line { sku: "screw".to_owned(), quantity: 100, cents: 12 }],
        currency: "EUR".to_owned(),
        note: None,
        express: None,
        reference: None,
    }
}

#[test]
fn p42_an_order_is_fulfilled_although_the_payment_service_fails_and_hangs() {
    kit().run(async |kit| {
        kit.mock(Mock::step("charge").fails(2, Error::failed("503")).times_out(1).returns("payment-1"))
            .unwrap();
        let run = kit.start_instance_as("fulfil", "o-1", &order()).await.unwrap();
        assert_eq!(run.step::<i64>("validate").await.unwrap(), 1_200);
        let receipt: Receipt = run.result().await.unwrap();
        assert_eq!((receipt.payment.as_str(), receipt.cents), ("payment-1", 1_200));
        assert!(receipt.tracking.starts_with("o-1-1-"), "{}", receipt.tracking);
    });
}

#[test]
fn p42_a_refused_payment_ends_the_order_with_the_service_s_own_words() {
    kit().run(async |kit| {
        let refused = Error::permanent("card declined").named("PaymentRefused");
        kit.mock(Mock::step("charge").always_fails(refused)).unwrap();
        let run = kit.start_instance("fulfil", &order()).await.unwrap();
        let error = run.error().await.unwrap();
        assert_eq!((error.name(), error.message()), ("PaymentRefused", "card declined"));
        let shipped = run.step::<String>("ship").await.unwrap_err();
        assert!(matches!(shipped, KitError::Unreachable { status: Status::Errored, .. }), "{shipped}");
    });
}

#[test]
fn p42_the_orders_of_the_demo_end_as_their_file_says() {
    kit().run(async |kit| {
        kit.mock(Mock::step("charge").returns("payment-1")).unwrap();
        for case in orders::read(None).unwrap().into_iter().step_by(25) {
            let run = kit.start_instance_as("fulfil", &case.id, &case.input).await.unwrap();
            let end = run.end().await.unwrap();
            assert_eq!(run.status().await.unwrap().word(), case.expect, "{}: {end:?}", case.id);
        }
    });
}

#[test]
fn p43_an_order_comes_to_the_same_wherever_its_worker_crashes() {
    let report = crash_everywhere(|| {
        (kit(), async |kit: Kit| {
            kit.mock(Mock::step("charge").fails(1, Error::failed("503")).returns("payment-1")).unwrap();
            let run = kit.start_instance_as("fulfil", "o-1", &order()).await.unwrap();
            let receipt: Receipt = run.result().await.unwrap();
            (receipt.payment, receipt.tracking, receipt.cents)
        })
    });
    assert!(report.points.len() > 20, "{:#?}", report.points);
}
