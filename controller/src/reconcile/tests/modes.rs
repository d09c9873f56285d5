//! Plans and outcomes of one mode.

use crate::reconcile::model::outcome::{
    ActiveOutcome, BindingOutcome, CommonOutcome, StandaloneOutcome,
};
use crate::reconcile::plan::decision::{ActivePlan, BindingPlan, ModePlan, Plan, StandalonePlan};

impl Plan {
    /// The plan of an active actor.
    #[track_caller]
    pub(crate) fn active(self) -> ActivePlan {
        match self {
            Self::Active(plan) => *plan,
            other => panic!("the actor is not active: {other:?}"),
        }
    }
}

impl ActivePlan {
    /// The steps of a standalone actor.
    #[track_caller]
    pub(crate) fn standalone(self) -> StandalonePlan {
        match self.mode {
            ModePlan::Standalone(steps) => *steps,
            ModePlan::Binding(_) => panic!("the actor is a binding"),
        }
    }

    /// The steps of a binding.
    #[track_caller]
    pub(crate) fn binding(self) -> BindingPlan {
        match self.mode {
            ModePlan::Binding(steps) => *steps,
            ModePlan::Standalone(_) => panic!("the actor is standalone"),
        }
    }
}

impl ActiveOutcome {
    /// The outcome of a binding.
    #[track_caller]
    pub(crate) fn binding(self) -> BindingOutcome {
        match self {
            Self::Binding(outcome) => *outcome,
            Self::Standalone(_) => panic!("the actor is standalone"),
        }
    }
}

/// The outcome of a standalone actor without a workload.
impl From<CommonOutcome> for ActiveOutcome {
    fn from(common: CommonOutcome) -> Self {
        Self::from(StandaloneOutcome {
            common,
            ..StandaloneOutcome::default()
        })
    }
}
