//! The context of a workflow function.

mod others;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use everstep_protocol::duration::{IntoMillis, SLEEP_MAX};
use everstep_protocol::{CallKind, EventType, FailureKind, Payload};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::attributes::shown_state;
use crate::call::{
    EventCall, EventsCall, IntoTimestamp, Patched, Pending, PlanCall, Recorded, RemoteCall, RemoteCalls,
    Sleep, StepCall, TYPES_MAX,
};
use crate::host::{Shared, Spec, step_fn};
use crate::random::{self, Random};
use crate::{Error, IntoAttribute, Next, Step};

/// What a workflow function does its work through. Cheap to clone; clones are the same context.
///
/// It answers only inside its own workflow function. In a spawned task, on another thread or in a step its calls fail
/// at once, and what returns a plain value panics with a message that says so (rule W30).
///
/// ```
/// use everstep_sdk::{Error, Retry, Step, Workflow};
///
/// async fn greet(cx: Workflow, name: String) -> Result<String, Error> {
///     let greeting = cx.step("compose", &name, compose).retry(Retry::constant("1s").limit(3)).await?;
///     cx.sleep("let it sink in", "1 hour").await?;
///     Ok(greeting)
/// }
///
/// async fn compose(_step: Step, name: String) -> Result<String, Error> {
///     Ok(format!("Hello, {name}!"))
/// }
/// ```
#[derive(Clone)]
pub struct Workflow {
    shared: Arc<Shared>,
}

impl Workflow {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A step: runs the function once per attempt and records its output, which every later replay returns without
    /// running it again (rule P1).
    ///
    /// The input is recorded as JSON when the step is called, and the function gets what that JSON decodes to: give it
    /// by reference or by value, several as a tuple. Steps of one name are counted in the order of these calls.
    ///
    /// ```
    /// use everstep_sdk::{Error, Step, Workflow};
    ///
    /// # async fn body(cx: Workflow) -> Result<(), Error> {
    /// let hold = cx.step("reserve", "blue socks", reserve).await?;
    /// let paid: u64 = cx.step("charge", (&hold, 1200), charge).timeout("2 min").await?;
    /// let next = cx.step("count", paid, async |_step: Step, paid: u64| Ok::<_, Error>(paid + 1)).await?;
    /// # Ok(()) }
    ///
    /// async fn reserve(_step: Step, what: String) -> Result<String, Error> { Ok(what) }
    /// async fn charge(_step: Step, (hold, cents): (String, u64)) -> Result<u64, Error> { Ok(cents) }
    /// ```
    pub fn step<In, Out, E, F, Fut>(
        &self,
        name: impl AsRef<str>,
        input: impl Serialize,
        function: F,
    ) -> StepCall<Out>
    where
        In: DeserializeOwned,
        Out: Serialize + DeserializeOwned,
        E: Into<Error>,
        F: Fn(Step, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Out, E>> + Send + 'static,
    {
        let (pending, input) = self.call_with_input(name.as_ref(), input);
        let subject = pending.describe();
        let work = input.map(|input| (input.clone(), step_fn(subject, input, Arc::new(function))));
        StepCall::new(pending, work)
    }

    /// A step that thinks and does nothing: what it returns is a plan, an ordered list of actions, which is recorded before the first
    /// of them runs (rule L10). A crash while it thinks changes nothing outside, and thinking begins anew. After that the plan stands:
    /// whatever crashes, each action is done as if it were the only one, and none that has its outcome is done again.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Step, Workflow};
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Serialize, Deserialize)]
    /// enum Action { Refund(u64), Write(String) }
    ///
    /// # async fn body(cx: Workflow, complaint: String) -> Result<(), Error> {
    /// let plan = cx.plan("decide", &complaint, decide).await?;
    /// for action in &plan {
    ///     match &**action {
    ///         Action::Refund(cents) => action.step("refund", cents, refund).await?,
    ///         Action::Write(text) => action.step("write", text, write).await?,
    ///     }
    /// }
    /// # Ok(()) }
    ///
    /// async fn decide(_step: Step, complaint: String) -> Result<Vec<Action>, Error> {
    ///     Ok(vec![Action::Refund(500), Action::Write(format!("Sorry about: {complaint}"))])
    /// }
    /// async fn refund(_step: Step, cents: u64) -> Result<(), Error> { Ok(()) }
    /// async fn write(_step: Step, text: String) -> Result<(), Error> { Ok(()) }
    /// ```
    pub fn plan<In, A, E, F, Fut>(
        &self,
        name: impl AsRef<str>,
        input: impl Serialize,
        function: F,
    ) -> PlanCall<A>
    where
        In: DeserializeOwned,
        A: Serialize + DeserializeOwned,
        E: Into<Error>,
        F: Fn(Step, In) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Vec<A>, E>> + Send + 'static,
    {
        let thinks = move |step: Step, input: In| {
            let thinking = function(step.clone(), input);
            async move { thinking.await.map(|actions| Recorded::new(&step, actions)) }
        };
        PlanCall::new(self.clone(), self.step(name, input, thinks))
    }

    /// A step that the workers of a pool run: its own deployment, scaled on its own, in any language. The name is the
    /// step's and, unless [`function`](RemoteCall::function) says otherwise, the registered function's.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow) -> Result<(), Error> {
    /// let thumbnail = cx.remote::<String>("resize", ("cat.png", 64)).on("imaging").timeout("1 min").await?;
    /// # Ok(()) }
    /// ```
    pub fn remote<Out: DeserializeOwned>(
        &self,
        name: impl AsRef<str>,
        input: impl Serialize,
    ) -> RemoteCall<Out> {
        let name = name.as_ref();
        let (pending, input) = self.call_with_input(name, input);
        RemoteCall::new(pending, name, input)
    }

    /// One remote step for each input, all of this name and counted in the order of the inputs. Awaiting it gives the outcomes
    /// in that order, once all are there (rule P7).
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow, pictures: Vec<String>) -> Result<(), Error> {
    /// let resized = cx.remote_all::<String>("resize", &pictures).on("imaging").at_most(50).await;
    /// let resized = resized.into_iter().collect::<Result<Vec<_>, _>>()?;
    /// # Ok(()) }
    /// ```
    pub fn remote_all<Out: DeserializeOwned>(
        &self,
        name: impl AsRef<str>,
        inputs: impl IntoIterator<Item = impl Serialize>,
    ) -> RemoteCalls<Out> {
        let name = name.as_ref();
        RemoteCalls::new(inputs.into_iter().map(|input| self.remote(name, input)).collect())
    }

    fn call_with_input(&self, name: &str, input: impl Serialize) -> (Pending, Option<Payload>) {
        self.call_of(CallKind::Step, name, input)
    }

    fn call_of(&self, kind: CallKind, name: &str, input: impl Serialize) -> (Pending, Option<Payload>) {
        let mut pending = Pending::make(&self.shared, kind, name);
        let input = Payload::encode(&input)
            .map_err(|error| {
                pending.refuse(FailureKind::Unserialisable, format_args!("recording the input: {error}"));
            })
            .ok();
        (pending, input)
    }

    /// Sleeps for so long, at most ten years: text, milliseconds or a [`Duration`]. It survives every restart, and
    /// while the instance sleeps it occupies no worker. It is known by its name: changing the length in code does not
    /// disturb an instance that already sleeps (rule P19).
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow) -> Result<(), Error> {
    /// cx.sleep("cooling off", "1 hour 30 minutes").await?;
    /// # Ok(()) }
    /// ```
    pub fn sleep(&self, name: impl AsRef<str>, duration: impl IntoMillis) -> Sleep {
        let mut pending = Pending::make(&self.shared, CallKind::Sleep, name.as_ref());
        let spec = match duration.into_millis() {
            Ok(duration) if duration <= SLEEP_MAX => Some(Spec::Sleep(duration)),
            Ok(duration) => {
                let reason = format_args!("{duration} is longer than the longest sleep, {SLEEP_MAX}");
                pending.refuse(FailureKind::Invalid, reason);
                None
            }
            Err(error) => {
                pending.refuse(FailureKind::Invalid, error);
                None
            }
        };
        Sleep::new(pending, spec)
    }

    /// Sleeps until that moment, at most ten years ahead. A past one returns at once.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow) -> Result<(), Error> {
    /// let reminder = cx.now() + std::time::Duration::from_secs(86_400);
    /// cx.sleep_until("reminder", reminder).await?;
    /// # Ok(()) }
    /// ```
    pub fn sleep_until(&self, name: impl AsRef<str>, moment: impl IntoTimestamp) -> Sleep {
        let mut pending = Pending::make(&self.shared, CallKind::Sleep, name.as_ref());
        let latest = self.shared.lock().now.plus(SLEEP_MAX);
        let moment = moment.into_timestamp().filter(|moment| *moment <= latest);
        if moment.is_none() {
            let reason = format_args!("the moment is further away than the longest sleep, {SLEEP_MAX}");
            pending.refuse(FailureKind::Invalid, reason);
        }
        Sleep::new(pending, moment.map(Spec::SleepUntil))
    }

    /// Waits for one event of this type (1 to 100 characters), which somebody sends to this instance. Events are kept from the
    /// moment they are accepted, also before anybody waits, and given out oldest first, each once (rule P22). While the
    /// instance waits it occupies no worker.
    ///
    /// It fails with a timeout after 24 hours, unless [`timeout`](EventCall::timeout) says otherwise, and with an error named
    /// `EventPayload` if the payload does not fit the type that the code asks for; the event is consumed all the same. The
    /// loser of a race takes no event: one that came too late for it goes to the next wait.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow) -> Result<(), Error> {
    /// let approved_by: String = cx.event("approved").timeout("2 days").await?;
    /// # Ok(()) }
    /// ```
    pub fn event<T: DeserializeOwned>(&self, kind: impl AsRef<str>) -> EventCall<T> {
        let (pending, types) = self.await_types(&[kind]);
        EventCall::new(pending, types)
    }

    /// Waits for one event of any of these types, at most 16: the oldest that there is, or the first that comes.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow) -> Result<(), Error> {
    /// let decision = cx.events::<String>(["approved", "rejected"]).await?;
    /// if decision.kind == "rejected" {
    ///     return Err(Error::permanent(decision.payload));
    /// }
    /// # Ok(()) }
    /// ```
    pub fn events<T: DeserializeOwned>(
        &self,
        kinds: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> EventsCall<T> {
        let kinds: Vec<_> = kinds.into_iter().collect();
        let (pending, types) = self.await_types(&kinds);
        EventsCall::new(pending, types)
    }

    /// The call is named after its types.
    fn await_types(&self, kinds: &[impl AsRef<str>]) -> (Pending, Vec<EventType>) {
        let name = kinds.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" | ");
        let mut pending = Pending::make(&self.shared, CallKind::Event, &name);
        let types = kinds.iter().map(EventType::new).collect::<Result<Vec<_>, _>>();
        let types = types.unwrap_or_else(|error| {
            pending.refuse(FailureKind::Invalid, error);
            Vec::new()
        });
        if !(1..=TYPES_MAX).contains(&kinds.len()) {
            let reason = format_args!("it names {} types, it must name 1 to {TYPES_MAX}", kinds.len());
            pending.refuse(FailureKind::Invalid, reason);
        }
        (pending, types)
    }

    /// Whether a change of the code applies to this instance: not if code without it has been past this point, yes otherwise
    /// (rule P40). So instances that were open when the change was deployed keep the old course, and the others take the new.
    ///
    /// The first yes is recorded in the journal. One change has one answer in an instance, in every replay and wherever else it
    /// is asked; its name is any text that a step could have.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Step, Workflow};
    /// # async fn body(cx: Workflow, order: u64) -> Result<(), Error> {
    /// if cx.patched("notify by push").await? {
    ///     cx.step("push", order, tell).await?;
    /// } else {
    ///     cx.step("mail", order, tell).await?;
    /// }
    /// # Ok(()) }
    /// # async fn tell(_step: Step, _order: u64) -> Result<(), Error> { Ok(()) }
    /// ```
    pub fn patched(&self, change: impl AsRef<str>) -> Patched {
        Patched::new(Pending::make(&self.shared, CallKind::Patch, change.as_ref()))
    }

    /// What remains of [`patched`](Self::patched) when the old course is removed: instances that have the change recorded go
    /// on, and so they do if the code before this comes back. Remove it too when none of those is open any more.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Step, Workflow};
    /// # async fn body(cx: Workflow, order: u64) -> Result<(), Error> {
    /// cx.deprecate_patch("notify by push").await?;
    /// cx.step("push", order, tell).await?;
    /// # Ok(()) }
    /// # async fn tell(_step: Step, _order: u64) -> Result<(), Error> { Ok(()) }
    /// ```
    pub fn deprecate_patch<Change: AsRef<str>>(
        &self,
        change: Change,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<Change> {
        let asked = self.patched(change);
        async move { asked.await.map(|_| ()) }
    }

    /// Whether somebody has cancelled this instance (rule P30). The calls that were open at that moment have ended with an error
    /// for which [`Error::is_cancelled`] is true; later ones work as always, until the deadline of the cancel.
    ///
    /// # Panics
    /// Outside the workflow function.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.must_be_polling("is_cancelled");
        self.shared.lock().cancelled
    }

    /// Runs `work`; if a cancel ends it, runs `clean_up` before the cancel goes on (rule P30). Whatever else `work` comes to is
    /// handed on unchanged. An error of the clean-up is what the workflow ends with, if it is handed on.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Step, Workflow};
    /// # async fn reserve(_: Step, n: u32) -> Result<u32, Error> { Ok(n) }
    /// # async fn release(_: Step, n: u32) -> Result<(), Error> { Ok(()) }
    /// # async fn body(cx: Workflow, seats: u32) -> Result<(), Error> {
    /// let hold = cx.step("reserve", seats, reserve).await?;
    /// let work = async { cx.sleep("wait for payment", "1 day").await };
    /// cx.on_cancel(work, || async { cx.step("release", hold, release).await }).await
    /// # }
    /// ```
    pub async fn on_cancel<Out, Cleaned, Work, CleanUp>(
        &self,
        work: Work,
        clean_up: impl FnOnce() -> CleanUp,
    ) -> Result<Out, Error>
    where
        Work: Future<Output = Result<Out, Error>>,
        CleanUp: Future<Output = Result<Cleaned, Error>>,
    {
        match work.await {
            Err(error) if error.is_cancelled() => {
                clean_up().await?;
                Err(error)
            }
            result => result,
        }
    }

    /// The time of the latest thing that this workflow has learnt, by the database's clock: the same in every replay.
    ///
    /// # Panics
    /// Outside the workflow function.
    #[must_use]
    pub fn now(&self) -> SystemTime {
        self.must_be_polling("now");
        let micros = self.shared.lock().now.0;
        let distance = Duration::from_micros(micros.unsigned_abs());
        if micros < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
    }

    /// A random value, the same in every replay and not to be guessed: an integer, a `bool` or an array of bytes.
    ///
    /// ```
    /// # fn body(cx: everstep_sdk::Workflow) {
    /// let dice = cx.random::<u64>() % 6 + 1;
    /// let secret: [u8; 32] = cx.random();
    /// # }
    /// ```
    ///
    /// # Panics
    /// Outside the workflow function.
    #[must_use]
    pub fn random<T: Random>(&self) -> T {
        self.must_be_polling("random");
        T::draw(&mut |bytes| random::fill(&self.shared, bytes))
    }

    /// A random number from 0 to below 1, the same in every replay.
    ///
    /// # Panics
    /// Outside the workflow function.
    #[must_use]
    pub fn random_f64(&self) -> f64 {
        // The 53 bits that an f64 holds exactly.
        (self.random::<u64>() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// So many random bytes, the same in every replay.
    ///
    /// # Panics
    /// Outside the workflow function.
    #[must_use]
    pub fn random_bytes(&self, count: usize) -> Vec<u8> {
        self.must_be_polling("random_bytes");
        let mut bytes = vec![0; count];
        random::fill(&self.shared, &mut bytes);
        bytes
    }

    /// A random UUID (version 4), the same in every replay.
    ///
    /// # Panics
    /// Outside the workflow function.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        uuid::Builder::from_random_bytes(self.random()).into_uuid()
    }

    /// The id of this instance.
    #[must_use]
    pub fn instance_id(&self) -> &str {
        self.shared.info.id.as_str()
    }

    /// The name of this workflow.
    #[must_use]
    pub fn name(&self) -> &str {
        self.shared.info.workflow.as_str()
    }

    /// The namespace of this instance.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.shared.info.namespace.as_str()
    }

    /// Which run of the instance this is, each of which has a journal of its own: 1, then one more per restart and per generation.
    #[must_use]
    pub fn run(&self) -> u32 {
        self.shared.info.run.0
    }

    /// Publishes the state of this instance, in place of the one before: any value of at most 16 KiB of JSON, which everybody may read
    /// at any time without running code (rule P37): over HTTP, by `everstep instances get`, of an embedded system. It travels with
    /// the next report, when a step has ended, a wait opens, or the instance suspends or ends, and stays after the end.
    ///
    /// ```
    /// # use everstep_sdk::{Error, Step, Workflow};
    /// # async fn ship(_: Step, item: u64) -> Result<(), Error> { Ok(()) }
    /// # async fn body(cx: Workflow, items: Vec<u64>) -> Result<(), Error> {
    /// for (done, item) in items.iter().enumerate() {
    ///     cx.publish(&(done, items.len()))?;
    ///     cx.step("ship", item, ship).await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Of a state that is too large or has no JSON form; the one before stays.
    ///
    /// # Panics
    /// Outside the workflow function.
    pub fn publish(&self, state: &impl Serialize) -> Result<(), Error> {
        self.must_be_polling("publish");
        // Encoded before the lock is taken: that is code of the user's.
        let state = shown_state(state)?;
        self.shared.lock().shown.state = Some(state);
        Ok(())
    }

    /// Sets an attribute, by which this instance can be found in lists (rule P37): a name of 1 to 64 of `A-Z a-z 0-9 _ - .`, and a
    /// text of at most 256 characters, a number or a `bool`; at most 32 of them. It travels like [`publish`](Self::publish).
    ///
    /// ```
    /// # use everstep_sdk::{Error, Workflow};
    /// # async fn body(cx: Workflow) -> Result<(), Error> {
    /// cx.set_attribute("stage", "packed")?;
    /// cx.set_attribute("parcels", 3)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Of a name or value that breaks its rule, and of a 33rd attribute; nothing has changed.
    ///
    /// # Panics
    /// Outside the workflow function.
    pub fn set_attribute(&self, name: impl AsRef<str>, value: impl IntoAttribute) -> Result<(), Error> {
        self.must_be_polling("set_attribute");
        let (name, value) = (name.as_ref(), value.into_attribute());
        self.shared.lock().shown.set(name, value)
    }

    /// Removes an attribute; one that is not set is removed already.
    ///
    /// # Errors
    /// Of a name that breaks its rule.
    ///
    /// # Panics
    /// Outside the workflow function.
    pub fn remove_attribute(&self, name: impl AsRef<str>) -> Result<(), Error> {
        self.must_be_polling("remove_attribute");
        let name = name.as_ref();
        self.shared.lock().shown.remove(name)
    }

    /// An attribute as the start or this workflow set it last; none if it is not set or of another type.
    ///
    /// # Panics
    /// Outside the workflow function.
    #[must_use]
    pub fn attribute<T: DeserializeOwned>(&self, name: impl AsRef<str>) -> Option<T> {
        self.must_be_polling("attribute");
        let name = name.as_ref();
        let value = self.shared.lock().shown.attributes.get(name)?.as_json().to_owned();
        Payload::from_trusted(value).decode().ok()
    }

    /// Goes on as new, as the next generation of this instance: `return cx.continue_as_new(input)` is `return
    /// Ok(Next::Again(input))`. See [`Next`].
    ///
    /// ```
    /// # use everstep_sdk::{Error, Next, Workflow};
    /// async fn count(cx: Workflow, round: u64) -> Result<Next<u64, u64>, Error> {
    ///     cx.sleep("a while", "1 hour").await?;
    ///     if round < 1_000_000 {
    ///         return cx.continue_as_new(round + 1);
    ///     }
    ///     Ok(Next::Done(round))
    /// }
    /// ```
    ///
    /// # Errors
    /// None of its own.
    pub fn continue_as_new<In, Out, E>(&self, input: In) -> Result<Next<In, Out>, E> {
        Ok(Next::Again(input))
    }

    /// Which generation this is: 1, then one more per continue-as-new.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.shared.info.generation.0
    }

    fn must_be_polling(&self, what: &str) {
        assert!(
            self.shared.is_polling(),
            "Workflow::{what} answers only inside its own workflow function, not in a spawned task, another thread or a step"
        );
    }
}

impl fmt::Debug for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflow")
            .field("name", &self.name())
            .field("instance", &self.instance_id())
            .finish_non_exhaustive()
    }
}
