//! When a failed step is tried again, as code says it.

use std::fmt;
use std::sync::Arc;

use everstep_protocol::duration::{DurationError, IntoMillis};
use everstep_protocol::policy::{Backoff, Limit};
use everstep_protocol::{Millis, Policy};

use crate::Error;
use crate::host::DelayFn;

/// How often and how soon a failed step is tried again. What is not said has its default: 5 retries, exponential from
/// 10 s, never more than a day between two (rules P10, P11).
///
/// ```
/// use everstep_sdk::Retry;
///
/// Retry::exponential("10s").limit(5).max_delay("1 hour"); // 10, 20, 40, 80, 160 s
/// Retry::constant("1 min").unlimited().max_elapsed("1 day");
/// Retry::new().limit(2); // the default delays
/// Retry::none(); // one attempt
/// ```
///
/// A text that is no duration does not panic: the call that uses it fails with an error that names the text (P17).
#[derive(Clone, Default)]
#[must_use = "a retry policy does nothing until a call is given it"]
pub struct Retry {
    limit: Option<Limit>,
    delay: Option<Millis>,
    backoff: Option<Backoff>,
    max_delay: Option<Millis>,
    max_elapsed: Option<Millis>,
    jitter: bool,
    function: Option<DelayFn>,
    refused: Option<DurationError>,
}

impl Retry {
    /// The defaults, to change some of them.
    pub fn new() -> Self {
        Self::default()
    }

    /// No retry: one attempt.
    pub fn none() -> Self {
        Self::new().limit(0)
    }

    /// The same delay each time.
    pub fn constant(delay: impl IntoMillis) -> Self {
        Self::backoff(Backoff::Constant, delay)
    }

    /// After failed attempt n, n times the delay.
    pub fn linear(delay: impl IntoMillis) -> Self {
        Self::backoff(Backoff::Linear, delay)
    }

    /// The delay, and twice as long after each further attempt.
    pub fn exponential(delay: impl IntoMillis) -> Self {
        Self::backoff(Backoff::Exponential, delay)
    }

    fn backoff(backoff: Backoff, delay: impl IntoMillis) -> Self {
        let mut retry = Self { backoff: Some(backoff), ..Self::default() };
        retry.delay = retry.read(delay);
        retry
    }

    /// So many retries after the first attempt. Default: 5.
    pub fn limit(mut self, retries: u32) -> Self {
        self.limit = Some(Limit::Times(retries));
        self
    }

    /// Retries until the step succeeds.
    pub fn unlimited(mut self) -> Self {
        self.limit = Some(Limit::Unlimited);
        self
    }

    /// The policy's own delay never grows beyond this. Default: 1 day.
    pub fn max_delay(mut self, delay: impl IntoMillis) -> Self {
        self.max_delay = self.read(delay);
        self
    }

    /// No attempt starts later than this after the first one. Default: none.
    pub fn max_elapsed(mut self, elapsed: impl IntoMillis) -> Self {
        self.max_elapsed = self.read(elapsed);
        self
    }

    /// Shortens each delay by up to half, differently for each instance and attempt, so that many that failed together
    /// do not come back together. Off by default.
    pub fn jitter(mut self) -> Self {
        self.jitter = true;
        self
    }

    /// Computes the delay after a failed attempt (from 1) from its error; `None` leaves it to the policy. If it
    /// panics, or gives a text that is no duration, the policy's own delay is used and the fact is recorded (rule P12).
    ///
    /// ```
    /// use everstep_sdk::{Error, Retry};
    ///
    /// Retry::new().delay_with(|attempt, error: &Error| (error.name() == "Busy").then_some(attempt * 500));
    /// ```
    pub fn delay_with<D, F>(mut self, function: F) -> Self
    where
        D: IntoMillis,
        F: Fn(u32, &Error) -> Option<D> + Send + Sync + 'static,
    {
        self.function = Some(Arc::new(move |attempt, failure| {
            let delay = function(attempt.0, &Error::from_failure(failure.clone()))?;
            // The caller takes a panic of the function as "use the policy's own delay" and records its message.
            Some(delay.into_millis().unwrap_or_else(|error| panic!("the delay function: {error}")))
        }));
        self
    }

    fn read(&mut self, value: impl IntoMillis) -> Option<Millis> {
        match value.into_millis() {
            Ok(millis) => Some(millis),
            Err(error) => {
                self.refused.get_or_insert(error);
                None
            }
        }
    }

    pub(crate) fn refused(&self) -> Option<&DurationError> {
        self.refused.as_ref()
    }

    pub(crate) fn function(&self) -> Option<&DelayFn> {
        self.function.as_ref()
    }

    /// What was said over the defaults, field by field.
    pub(crate) fn policy(&self, timeout: Option<Millis>) -> Policy {
        let default = Policy::default();
        Policy {
            limit: self.limit.unwrap_or(default.limit),
            delay: self.delay.unwrap_or(default.delay),
            backoff: self.backoff.unwrap_or(default.backoff),
            timeout: timeout.unwrap_or(default.timeout),
            max_delay: self.max_delay.unwrap_or(default.max_delay),
            max_elapsed: self.max_elapsed.or(default.max_elapsed),
            jitter: self.jitter || default.jitter,
            class: default.class,
        }
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retry")
            .field("policy", &self.policy(None))
            .field("delay_function", &self.function.is_some())
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}
