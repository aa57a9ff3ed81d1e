//! Calls side by side: all, the first, so many at once (rule P7).
//!
//! Calls are plain futures, so `join!` and what the crate `futures` has work as well. What is here says which of two wins
//! without a coin: outcomes reach a body one by one, in the order of the journal, and where several are there at once the first
//! in the order of the code wins (rule W32).

mod either;
mod joined;
mod race;

pub use either::Either;
pub use joined::{Each, Joined};
pub use race::Race;

use crate::Workflow;

impl Workflow {
    /// Everything side by side: awaiting it gives the outputs in the order given, once all are there. Thousands are fine.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Step, Workflow};
    /// # async fn body(cx: Workflow, orders: Vec<u64>) -> Result<(), Error> {
    /// let labels = cx.join_all(orders.iter().map(|order| cx.step("label", order, label))).await;
    /// let labels = labels.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// # Ok(()) }
    /// # async fn label(_step: Step, order: u64) -> Result<String, Error> { Ok(order.to_string()) }
    /// ```
    ///
    /// A few of different types are joined by `futures::join!` or `try_join!`.
    pub fn join_all<F: Future>(&self, calls: impl IntoIterator<Item = F>) -> Joined<std::vec::IntoIter<F>> {
        // Made now and not when polled: a call is numbered when it is made (rule W32).
        let calls: Vec<F> = calls.into_iter().collect();
        Joined::new(calls.into_iter(), usize::MAX)
    }

    /// The first of several: awaiting it gives its place, from 0, and its output. The others are dropped: what they run is
    /// cancelled, and their late outcomes are ignored.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Step, Workflow};
    /// # async fn body(cx: Workflow) -> Result<(), Error> {
    /// let (place, quote) = cx.race(["north", "south"].map(|depot| cx.step("quote", depot, quote))).await;
    /// # Ok(()) }
    /// # async fn quote(_step: Step, depot: String) -> Result<u64, Error> { Ok(depot.len() as u64) }
    /// ```
    ///
    /// # Panics
    /// With nothing to race, when it is awaited: that would never end.
    pub fn race<F: Future>(&self, calls: impl IntoIterator<Item = F>) -> Race<F> {
        Race::new(calls)
    }

    /// The first of two that may be of different types, such as a step and its deadline. The other is dropped, as by
    /// [`race`](Self::race).
    ///
    /// ```
    /// # use everstep_sdk::{Either, Error, Step, Workflow};
    /// # async fn body(cx: Workflow) -> Result<(), Error> {
    /// match cx.either(cx.step("ask", (), ask), cx.sleep("patience", "10 min")).await {
    ///     Either::First(answer) => println!("{}", answer?),
    ///     Either::Second(_) => return Err(Error::failed("no answer")),
    /// }
    /// # Ok(()) }
    /// # async fn ask(_step: Step, (): ()) -> Result<String, Error> { Ok("yes".to_owned()) }
    /// ```
    pub fn either<A: Future, B: Future>(
        &self,
        first: A,
        second: B,
    ) -> impl Future<Output = Either<A::Output, B::Output>> + use<A, B> {
        either::either(first, second)
    }

    /// The same for each of many items, so many at once.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Step, Workflow};
    /// # async fn body(cx: Workflow, pages: Vec<String>) -> Result<(), Error> {
    /// let sizes = cx.each(pages).at_most(16).run(|page| cx.step("fetch", page, fetch)).await;
    /// # Ok(()) }
    /// # async fn fetch(_step: Step, page: String) -> Result<u64, Error> { Ok(page.len() as u64) }
    /// ```
    pub fn each<Items: IntoIterator>(&self, items: Items) -> Each<Items> {
        Each::new(items)
    }
}
