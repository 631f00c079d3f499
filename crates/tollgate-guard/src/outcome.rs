//! The answer to a call: done, or refused.

use std::fmt;

use crate::refusal::{Payload, Refusal, Report};

/// The answer to a call: done, or refused.
#[derive(Debug)]
#[must_use = "a refusal is an answer, not an error: it has to be looked at"]
pub enum Outcome<T> {
    /// It was done.
    Done(T),
    /// It was refused, and nothing was changed.
    Refused(Refused),
}

impl<T> Outcome<T> {
    /// Changes the value of [`Outcome::Done`].
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Outcome<U> {
        match self {
            Self::Done(value) => Outcome::Done(f(value)),
            Self::Refused(refused) => Outcome::Refused(refused),
        }
    }

    /// Turns a refusal into an error, for callers that use `?`.
    pub fn into_result(self) -> Result<T, Refused> {
        match self {
            Self::Done(value) => Ok(value),
            Self::Refused(refused) => Err(refused),
        }
    }
}

/// One or more refusals of one call, sorted by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    refusals: Vec<Refusal>,
}

impl Refused {
    /// The refusals of a write, sorted by path. There must be at least one.
    pub(crate) fn new(refusals: Vec<Refusal>) -> Self {
        Self { refusals }
    }

    /// A refused read. The ledger does not record it, because a read changes nothing.
    pub(crate) fn unrecorded(refusal: Refusal) -> Self {
        Self { refusals: vec![refusal] }
    }

    /// The refusals. There is at least one.
    pub fn refusals(&self) -> &[Refusal] {
        &self.refusals
    }

    /// The payload of the first refusal, for the controller.
    pub fn payload(&self) -> Payload {
        self.refusals[0].payload()
    }

    /// One report per file, for the agent.
    pub fn reports(&self) -> Vec<Report> {
        self.refusals.iter().map(Refusal::report).collect()
    }
}

impl fmt::Display for Refused {
    /// One line per file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, refusal) in self.refusals.iter().enumerate() {
            let line_break = if index > 0 { "\n" } else { "" };
            write!(f, "{line_break}`{}`: {}", refusal.path, refusal.report().message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::FilePath;
    use crate::refusal::Reason;

    #[test]
    fn a_refusal_can_be_used_as_an_error() {
        let refusal = |path: &str, reason| Refusal::new(FilePath::trusted(path.into()), reason);
        let refused = Refused::new(vec![refusal("/w/a", Reason::Outside), refusal("/w/b", Reason::ReadOnly)]);
        let answer = || -> Result<(), Box<dyn std::error::Error>> {
            assert_eq!(Outcome::Done(7).into_result()?, 7);
            Ok(Outcome::Refused(refused.clone()).into_result()?)
        };
        let error = answer().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`/w/a`: The path leads out of the workspace.\n`/w/b`: The file is read-only."
        );
        assert_eq!(error.downcast_ref::<Refused>(), Some(&refused));
    }
}
