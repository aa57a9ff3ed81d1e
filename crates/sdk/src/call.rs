//! The futures of the calls that a body makes: builders until they are awaited, values after.
//!
//! A call is numbered when it is made and begins at its first poll (rule W32). One that is not valid never begins.

/// What a step's call can be told wherever it runs: its timeout, what takes it back, that its output is sensitive. A macro, since the
/// documentation of each call is to show them.
macro_rules! any_step {
    ($call:ident) => {
        impl<Out> $call<Out> {
            /// How long one attempt may take: text, milliseconds or a [`Duration`](std::time::Duration). Default: 10 min.
            pub fn timeout(mut self, timeout: impl everstep_protocol::duration::IntoMillis) -> Self {
                match timeout.into_millis() {
                    Ok(timeout) => self.timeout = Some(timeout),
                    Err(error) => self.pending.refuse(FailureKind::Invalid, error),
                }
                self
            }

            /// It is never called again by itself once it may have taken effect (rules L6, L7): what neither gives an output nor fails
            /// with an error that is [not sent](crate::Error::not_sent) or [refused](crate::Error::refused) asks a person, who decides
            /// what its outcome is. For what honours no key and cannot be looked up, such as a bank transfer. An entry in the journal
            /// precedes each attempt.
            pub fn at_most_once(mut self) -> Self {
                self.classified(everstep_protocol::Class::AtMostOnce, "at_most_once");
                self
            }

            /// How long after an attempt that may have taken effect looking might not show it yet: no attempt begins before. Only
            /// together with `look_first`.
            pub fn visibility_lag(mut self, lag: impl everstep_protocol::duration::IntoMillis) -> Self {
                match lag.into_millis() {
                    Ok(lag) => self.lag = Some(lag),
                    Err(error) => self.pending.refuse(FailureKind::Invalid, error),
                }
                self
            }

            fn classified(&mut self, class: everstep_protocol::Class, word: &str) {
                if self.class == everstep_protocol::Class::Keyed {
                    self.class = class;
                } else {
                    self.pending.refuse(
                        FailureKind::Invalid,
                        format_args!("{word} is refused, its class is said already: {}", self.class.word()),
                    );
                }
            }

            /// The policy with the class; a lag without anything to look with is refused.
            fn policy(&mut self) -> everstep_protocol::Policy {
                let class = match (self.class, self.lag) {
                    (everstep_protocol::Class::Lookup { .. }, Some(visibility_lag)) => {
                        everstep_protocol::Class::Lookup { visibility_lag }
                    }
                    (class, None) => class,
                    (class, Some(_)) => {
                        self.pending.refuse(
                            FailureKind::Invalid,
                            "visibility_lag is refused without look_first: there is nothing to look with",
                        );
                        class
                    }
                };
                everstep_protocol::Policy { class, ..self.retry.policy(self.timeout) }
            }
        }

        impl<Out: serde::de::DeserializeOwned> $call<Out> {
            /// What takes the step back if the workflow fails, or is ended with a rollback (rule P38): it runs in this worker, as a
            /// durable step of its own, after the workflow's function has ended. It is registered when the step begins, and runs whether
            /// the step completed, failed or was under way; last call first. A workflow that ends with a value takes nothing back.
            pub fn compensate<In, Done, E, F, Fut>(self, function: F) -> Self
            where
                In: serde::de::DeserializeOwned,
                Done: serde::Serialize,
                E: Into<$crate::Error>,
                F: Fn($crate::Step, $crate::Undo<In, Out>) -> Fut + Send + Sync + 'static,
                Fut: Future<Output = Result<Done, E>> + Send + 'static,
            {
                self.compensate_with($crate::Compensation::new(function))
            }

            /// Its output is shown to nobody (rule P44): no view, log, journal on a screen or export has it, nor the message and data of
            /// its error, also where the workflow hands that on as it is: to its own end, to its parent. The same holds for what its
            /// compensation gives. The code gets all of it as it is, in every replay; it is stored. The input is not hidden, and what
            /// the code makes of output and error is its own business: mark the steps that hand it on too, and do not put
            /// [`message`]($crate::Error::message) into an error of your own (one that is displayed is without it).
            pub fn sensitive(mut self) -> Self {
                self.sensitive = true;
                self.pending.hide();
                self
            }

            /// Like [`compensate`](Self::compensate), with a policy of its own.
            pub fn compensate_with(mut self, compensation: $crate::Compensation<Out>) -> Self {
                self.pending.compensate(compensation.into_recipe());
                self
            }
        }
    };
}
mod child;
mod event;
mod hook;
mod instance;
mod patched;
mod pending;
mod plan;
mod remote;
mod remote_all;
mod resume;
mod sleep;
mod step;

pub use child::{ChildCall, Starting};
pub(crate) use event::TYPES_MAX;
pub use event::{Event, EventCall, EventsCall};
pub use hook::{
    ConflictCall, Disposal, Hook, HookCall, HookConflict, HookTaken, IntoRetention, NextPayload, NextRequest,
    Owner, Payloads, RespondCall, Webhook, WebhookCall, WebhookRequest, WebhookResponse,
};
pub use instance::{Instance, ResultCall, SendCall};
pub use patched::Patched;
pub(crate) use pending::{HIDDEN, Pending};
pub(crate) use plan::Recorded;
pub use plan::{Plan, PlanCall, Planned};
pub use remote::RemoteCall;
pub use remote_all::RemoteCalls;
pub use resume::ResumeCall;
pub use sleep::{IntoTimestamp, Sleep};
pub use step::StepCall;
