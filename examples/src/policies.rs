//! One order, one run: five things that a second run of the same order may do, and how a producer starts or routes. The samples of
//! `docs/guides/idempotency.md` stand here word for word.

use everstep::{Either, Error, Hook, Step, Workflow};
use serde::{Deserialize, Serialize};

/// An order of a shop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The shop's number for it: what the token is made of.
    pub number: u64,
    /// Where it goes.
    pub address: String,
}

/// What comes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// The order's number.
    pub number: u64,
    /// Where it went.
    pub address: String,
}

fn token(order: &Order) -> String {
    format!("order:{}", order.number)
}

/// Reject: a second run of the order fails and names the first.
#[everstep::workflow]
pub async fn rejecting(cx: Workflow, order: Order) -> Result<Receipt, Error> {
    let claim: Hook<Order> = cx.hook("order").token(token(&order)).create()?;
    if let Some(owner) = claim.conflict().await? {
        return Err(Error::permanent(format!("{} does this order", owner.id())).named("Duplicate"));
    }
    fulfil(&cx, &order).await
}

/// Adopt: a second run gives what the first comes to, also when that has ended within the last week.
#[everstep::workflow]
pub async fn adopting(cx: Workflow, order: Order) -> Result<Receipt, Error> {
    let claim: Hook<Order> = cx.hook("order").token(token(&order)).retention("7 days").create()?.keep();
    match claim.conflict().await? {
        Some(owner) => owner.result().await,
        None => fulfil(&cx, &order).await,
    }
}

/// Inspect, then decide: an owner that has ended is adopted, one that is still at it is left alone.
#[everstep::workflow]
pub async fn inspecting(cx: Workflow, order: Order) -> Result<Receipt, Error> {
    let claim: Hook<Order> = cx.hook("order").token(token(&order)).retention("7 days").create()?.keep();
    let Some(owner) = claim.conflict().await? else { return fulfil(&cx, &order).await };
    match cx.either(owner.result(), cx.sleep("look", "1s")).await {
        Either::First(receipt) => receipt,
        Either::Second(_) => Err(Error::failed(format!("{} is at it", owner.id())).named("Busy")),
    }
}

/// Signal: a second run hands its order to the first. An owner that has ended, and keeps the token, cannot take it, and says so.
#[everstep::workflow]
pub async fn signalling(cx: Workflow, order: Order) -> Result<Receipt, Error> {
    let claim: Hook<Order> = cx.hook("order").token(token(&order)).retention("7 days").create()?.keep();
    let Some(owner) = claim.conflict().await? else { return fulfil_latest(&cx, &claim, order).await };
    match owner.send("changed", &order).await {
        Err(error) if error.name() != "InstanceEnded" => Err(error),
        Ok(()) | Err(_) => owner.result().await,
    }
}

/// Supersede: the newest run has the token, and the one before ends.
#[everstep::workflow]
pub async fn superseding(cx: Workflow, order: Order) -> Result<Option<Receipt>, Error> {
    let claim: Hook<Order> = cx.hook("order").token(token(&order)).force().create()?;
    claim.conflict().await?;
    match cx.either(claim.next(), cx.sleep("cooling off", "1 hour")).await {
        Either::First(Err(error)) if error.hook_taken().is_some() => Ok(None),
        Either::First(changed) => fulfil(&cx, &changed?).await.map(Some),
        Either::Second(_) => fulfil(&cx, &order).await.map(Some),
    }
}

/// Started with its token, which is its own from the first moment: what is routed to it replaces the order.
#[everstep::workflow]
pub async fn following(cx: Workflow, order: Order) -> Result<Receipt, Error> {
    let claim: Hook<Order> = cx.hook("order").token(token(&order)).create()?;
    fulfil_latest(&cx, &claim, order).await
}

/// The order as it was changed last within an hour.
async fn fulfil_latest(cx: &Workflow, claim: &Hook<Order>, mut order: Order) -> Result<Receipt, Error> {
    let deadline = cx.sleep("cooling off", "1 hour");
    let changes = async {
        loop {
            match cx.either(claim.next(), cx.event::<Order>("changed")).await {
                Either::First(changed) | Either::Second(changed) => order = changed?,
            }
        }
    };
    match cx.either(deadline, changes).await {
        Either::First(slept) => slept?,
        Either::Second(failed) => return failed,
    }
    fulfil(cx, &order).await
}

/// What an order may come to once.
async fn fulfil(cx: &Workflow, order: &Order) -> Result<Receipt, Error> {
    cx.step("ship", order, ship).await
}

/// Every attempt asks with the same key, so that the carrier sends one parcel however often it is asked.
async fn ship(step: Step, order: Order) -> Result<Receipt, Error> {
    carrier::send(step.idempotency_key(), &order).await
}

/// A carrier that honours idempotency keys, as it would be asked over the network.
pub mod carrier {
    use std::{
        collections::BTreeMap,
        sync::{Mutex, PoisonError},
    };

    use everstep::Error;

    use super::{Order, Receipt};

    /// Its parcels by their keys, and how often each was asked for.
    static PARCELS: Mutex<BTreeMap<String, (Receipt, u32)>> = Mutex::new(BTreeMap::new());

    /// Sends a parcel, or tells of the one that it has sent for this key.
    ///
    /// # Errors
    /// None: it is in a good mood.
    pub async fn send(key: &str, order: &Order) -> Result<Receipt, Error> {
        let parcel = Receipt { number: order.number, address: order.address.clone() };
        let receipt = {
            let mut parcels = PARCELS.lock().unwrap_or_else(PoisonError::into_inner);
            let (receipt, asked) = parcels.entry(key.to_owned()).or_insert((parcel, 0));
            *asked += 1;
            receipt.clone()
        };
        // The parcel is on its way, and whoever has asked may not live to hear of it.
        tokio::task::yield_now().await;
        Ok(receipt)
    }

    /// Hands over what it has sent, and how often it was asked for each, and begins anew.
    pub fn take() -> Vec<(Receipt, u32)> {
        let mut parcels = PARCELS.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *parcels).into_values().collect()
    }
}

/// Start or route, by a workflow: it starts the run of an order, or hands the order to the one that is at it.
#[everstep::workflow]
pub async fn routing(cx: Workflow, order: Order) -> Result<Routed, Error> {
    let token = token(&order);
    let mut holder = None;
    for _ in 0..3 {
        let run = cx.child::<Receipt>("run", following, &order).token(&token).detached().start();
        match run.await {
            Ok(started) => return Ok(Routed::Started(started.id().to_owned())),
            Err(error) => holder = Some(error.hook_conflict().ok_or(error)?.owner.id),
        }
        if let Some(owner) = cx.resume_hook("change", &token, &order).await? {
            return Ok(Routed::Delivered(owner.id().to_owned()));
        }
        // The owner has ended or let the token go meanwhile: the next start may win, or tell who has it now.
    }
    holder.map(Routed::Known).ok_or_else(|| Error::permanent("nobody has the token"))
}

/// Whom a producer asks: over HTTP, by message, or a test.
pub trait Front {
    /// Starts an instance with this token. The id of the instance that has it, if that is another one.
    fn start(
        &self,
        token: &str,
        order: &Order,
    ) -> impl Future<Output = anyhow::Result<Result<String, String>>>;
    /// Resumes whoever has the token. The id of the instance that took it; none if nobody could, and then nothing was kept.
    fn resume(&self, token: &str, order: &Order) -> impl Future<Output = anyhow::Result<Option<String>>>;
}

/// What became of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Routed {
    /// It was started, as this instance.
    Started(String),
    /// This instance runs it already, and has got it.
    Delivered(String),
    /// This instance has run it and ended; its token is kept.
    Known(String),
}

/// Start or route: the order is started, or the instance that has its token gets it. With an owner that awaits its hook it takes two
/// calls at most.
pub async fn start_or_route(front: &impl Front, order: &Order) -> anyhow::Result<Routed> {
    let token = token(order);
    let mut holder = None;
    for _ in 0..3 {
        match front.start(&token, order).await? {
            Ok(id) => return Ok(Routed::Started(id)),
            Err(owner) => holder = Some(owner),
        }
        if let Some(id) = front.resume(&token, order).await? {
            return Ok(Routed::Delivered(id));
        }
        // The owner has ended or let the token go meanwhile: the next start may win, or tell who has it now.
    }
    holder.map(Routed::Known).ok_or_else(|| anyhow::anyhow!("nobody has the token"))
}
