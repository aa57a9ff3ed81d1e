//! Runs a test once without a crash, and then once for each point at which its worker can crash.

use std::{fmt::Debug, sync::Arc};

use crate::{
    Kit, TestKit,
    life::{Plan, Points},
};

/// What [`crash_everywhere`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CrashReport {
    /// The points, each with a run of its own that crashed there.
    pub points: Vec<String>,
}

/// Runs a test without a crash, then again for every point that this run passed, with a crash of the worker right there, and
/// checks that each run comes to the same value. What the test gives should be the outcome and the effects: the workflow's
/// result, and what a fake of the world outside was told.
///
/// The points are: before and after each attempt of a step, each of the first 16 awaits inside one, before and after each
/// report of what came of a body's own awaits. A crash takes the worker with everything it runs; another takes its place,
/// and the attempts that it had under way are lost, which counts (rule P15).
///
/// `make` is called for each run, and gives a kit and the test; state that they share belongs in there, so that no run sees
/// another's. A workflow whose outcome tells the time cannot come to the same: the recovery of a crash takes some.
///
/// ```
/// use std::sync::{Arc, Mutex};
///
/// use everstep::{Error, Step, Workflow};
/// use everstep_testkit::{Kit, KitError, TestKit, crash_everywhere};
///
/// let report = crash_everywhere(|| {
///     // A service that honours idempotency keys.
///     let charged = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
///     let service = charged.clone();
///     let kit = TestKit::new().workflow_fn("order", move |cx: Workflow, cents: u64| {
///         let service = service.clone();
///         async move {
///             let charge = move |step: Step, cents: u64| {
///                 let service = service.clone();
///                 async move {
///                     service.lock().unwrap().insert((step.idempotency_key().to_owned(), cents));
///                     Ok::<_, Error>(())
///                 }
///             };
///             cx.step("charge", cents, charge).await?;
///             cx.sleep("cooling off", "14 days").await?;
///             Ok::<_, Error>("shipped")
///         }
///     });
///     let test = async move |kit: Kit| {
///         let order = kit.start_instance_as("order", "one", &100).await?;
///         let result: String = order.result().await?;
///         let charges: Vec<u64> = charged.lock().unwrap().iter().map(|(_, cents)| *cents).collect();
///         Ok::<_, KitError>((result, charges))
///     };
///     (kit, async move |kit| test(kit).await.unwrap())
/// });
/// assert!(report.points.len() > 4);
/// ```
///
/// # Panics
/// If a run differs, naming each point and both values; if a run does not pass its point; and as [`TestKit::run`] does.
pub fn crash_everywhere<F, T>(make: impl Fn() -> (TestKit, F)) -> CrashReport
where
    F: AsyncFnOnce(Kit) -> T + Send + 'static,
    T: PartialEq + Debug + Send + 'static,
{
    let (expected, points) = run(&make, Plan::Note);
    let names = points.names();
    let mut differences = Vec::new();
    for name in &names {
        let (value, points) = run(&make, Plan::CrashAt(name.clone()));
        if !points.has_crashed() {
            differences.push(format!("the second run never came to this point: {name}"));
        } else if value != expected {
            differences.push(format!(
                "a crash makes a difference at this point: {name}\n  without it: {expected:?}\n  with it:    {value:?}"
            ));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} points:\n{}",
        differences.len(),
        names.len(),
        differences.join("\n")
    );
    CrashReport { points: names }
}

fn run<F, T>(make: &impl Fn() -> (TestKit, F), plan: Plan) -> (T, Arc<Points>)
where
    F: AsyncFnOnce(Kit) -> T + Send + 'static,
    T: Send + 'static,
{
    let points = Arc::new(Points::new(plan));
    let (kit, test) = make();
    (kit.run_past(points.clone(), test), points)
}
