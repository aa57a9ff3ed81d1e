//! Whose code runs on this thread: a workflow's body, or an attempt of a step. Lines that it logs bear these labels, so that users
//! name nothing themselves. Setting them costs no allocation; what is not logged is not written down.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::pin,
};

use everstep_protocol::{Attempt, CallName, InstanceId, Namespace, Run, SessionId, WorkflowName};

/// Whose code runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Namespace.
    pub namespace: Namespace,
    /// Workflow.
    pub workflow: WorkflowName,
    /// The id that users see.
    pub instance: InstanceId,
    /// The run, where it is known: who runs a remote step does not.
    pub run: Option<Run>,
    /// The worker's session.
    pub session: Option<SessionId>,
    /// The step and its attempt; none for the body.
    pub step: Option<(CallName, Attempt)>,
}

thread_local! {
    static CURRENT: RefCell<Option<Label>> = const { RefCell::new(None) };
}

/// Puts back what was there before, however the code went.
struct Before(Option<Label>);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// Runs code under a label.
pub fn within<T>(label: &Label, code: impl FnOnce() -> T) -> T {
    let _before = Before(CURRENT.replace(Some(label.clone())));
    code()
}

/// Polls a future under a label, always.
pub async fn always<T>(label: Label, future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    poll_fn(|context| within(&label, || future.as_mut().poll(context))).await
}

/// What the running code is labelled with.
pub fn read<T>(read: impl FnOnce(Option<&Label>) -> T) -> T {
    CURRENT.with_borrow(|label| read(label.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(instance: &str) -> Label {
        Label {
            namespace: Namespace::default(),
            workflow: "orders".parse().unwrap(),
            instance: instance.parse().unwrap(),
            run: Some(Run(1)),
            session: None,
            step: None,
        }
    }

    fn here() -> Option<String> {
        read(|label| label.map(|label| label.instance.to_string()))
    }

    #[test]
    fn a_label_lasts_as_long_as_its_code_and_survives_a_panic() {
        within(&label("a"), || {
            within(&label("b"), || assert_eq!(here().as_deref(), Some("b")));
            let panicked = std::panic::catch_unwind(|| within(&label("c"), || panic!("of the body")));
            assert!(panicked.is_err());
            assert_eq!(here().as_deref(), Some("a"));
        });
        assert_eq!(here(), None);
    }

    #[test]
    fn a_future_has_its_label_in_each_poll_and_nobody_else_has_it() {
        let mut future = pin!(always(label("a"), async {
            assert_eq!(here().as_deref(), Some("a"));
            std::future::poll_fn({
                let mut polled = false;
                move |_| {
                    if std::mem::replace(&mut polled, true) {
                        std::task::Poll::Ready(())
                    } else {
                        std::task::Poll::Pending
                    }
                }
            })
            .await;
            here()
        }));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut context).is_pending());
        assert_eq!(here(), None);
        assert_eq!(future.as_mut().poll(&mut context), std::task::Poll::Ready(Some("a".to_owned())));
    }
}
