//! The JSON of a rollback: that compensations run, or how each ended (rule P39).

use everstep_protocol::journal::{Compensated, Undone, UndoneEnd};
use everstep_store::InstanceView;
use serde::Serialize;
use utoipa::ToSchema;

use super::view::{CallView, Error, time};

/// The compensations of an instance.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Rollback)]
pub(super) struct RollbackView {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    /// Each, in the order in which they ran; only once all are over.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    compensations: Vec<UndoneView>,
    /// How many more there were.
    #[serde(skip_serializing_if = "is_zero")]
    more: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One compensation, by its step's name and count.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Compensation)]
pub(super) struct UndoneView {
    call: CallView,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Error>,
}

impl RollbackView {
    /// Of an instance whose body is over, or to be stopped, or which has ended after its compensations.
    pub(super) fn of(view: &InstanceView) -> Option<Self> {
        if let Some(compensated) = &view.compensated {
            return Some(Self::over(compensated.clone()));
        }
        let since = view.control.compensating_at.map(time)?;
        Some(Self { state: "compensating", since: Some(since), compensations: Vec::new(), more: 0 })
    }

    pub(super) fn over(compensated: Compensated) -> Self {
        let compensations = compensated.steps.into_iter().map(UndoneView::from).collect();
        Self { state: "over", since: None, compensations, more: compensated.more }
    }

    /// The compensations alone, as the journal shows them.
    pub(super) fn into_compensations(self) -> Vec<UndoneView> {
        self.compensations
    }
}

impl From<Undone> for UndoneView {
    fn from(undone: Undone) -> Self {
        let (outcome, error) = match undone.end {
            UndoneEnd::Done => ("done", None),
            UndoneEnd::Failed(failure) => ("failed", Some(Error::from(failure))),
            UndoneEnd::Skipped => ("skipped", None),
        };
        Self { call: CallView::from(&undone.call), outcome, error }
    }
}
