//! The value of a condition of an actor: everything but its type, generation and transition time.

use crate::fault::{Fault, Reason};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for ConditionStatus {
    fn from(is_true: bool) -> Self {
        if is_true { Self::True } else { Self::False }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionValue {
    pub status: ConditionStatus,
    pub reason: Reason,
    pub message: String,
}

impl ConditionValue {
    pub fn new(
        status: impl Into<ConditionStatus>,
        reason: Reason,
        message: impl Into<String>,
    ) -> Self {
        Self {
            status: status.into(),
            reason,
            message: message.into(),
        }
    }

    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }

    pub fn is_false(&self) -> bool {
        self.status == ConditionStatus::False
    }
}

/// A fault makes the condition that it concerns false.
impl From<&Fault> for ConditionValue {
    fn from(fault: &Fault) -> Self {
        Self::new(false, fault.reason, &*fault.message)
    }
}
