//! The answer of a hook comes in time, whatever happens: neither a panic nor a hanging disk prevents it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use serde_json::Value;
use tollgate::error::{At, Fault};
use tollgate::settings::Settings;
use tollgate_base::sys::Deadline;

use crate::error::CliError;

/// The answer to a fault under these settings, if there is one.
pub(super) type FaultAnswer<'a> = &'a dyn Fn(&Settings, &CliError) -> Option<Value>;

/// The deadline of a hook. If it passes, the process prints the answer to that fault, and exits.
pub(super) struct Timer {
    started: Instant,
    deadline: Result<Deadline, Fault>,
}

impl Timer {
    /// Starts with the default settings: nobody knows yet which workspace judges the call.
    pub(super) fn start(started: Instant, fault: FaultAnswer<'_>) -> Self {
        let (wait, words) = last_words(started, &Settings::default(), fault);
        Self { started, deadline: Deadline::set(wait, words).at("set a timer", "") }
    }

    fn change(&mut self, settings: &Settings, fault: FaultAnswer<'_>) {
        let (wait, words) = last_words(self.started, settings, fault);
        if let Ok(deadline) = &mut self.deadline
            && let Err(fault) = deadline.change(wait, words).at("set a timer", "")
        {
            self.deadline = Err(fault);
        }
    }

    /// Does the work of a hook before the deadline. The work tells the settings as soon as it knows them.
    pub(super) fn answered(
        mut self,
        fault: FaultAnswer<'_>,
        work: impl FnOnce(&mut dyn FnMut(&Settings)) -> Result<Option<Value>, CliError>,
    ) -> Option<Value> {
        self.change(&Settings::default(), fault);
        answered(fault, |told| {
            let answer = work(&mut |settings| {
                self.change(settings, fault);
                told(settings);
            })?;
            // Without a deadline, the answer may have come too late.
            drop(self.deadline?);
            Ok(answer)
        })
    }
}

/// Does the work of a hook. A fault and a panic are answered, too.
pub(super) fn answered(
    fault: FaultAnswer<'_>,
    work: impl FnOnce(&mut dyn FnMut(&Settings)) -> Result<Option<Value>, CliError>,
) -> Option<Value> {
    let mut settings = Settings::default();
    let done = catch_unwind(AssertUnwindSafe(|| work(&mut |read| settings = read.clone())));
    match done {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => fault(&settings, &error),
        Err(_) => fault(&settings, &panicked()),
    }
}

pub(super) fn panicked() -> CliError {
    CliError::usage(
        "the tollgate hook failed: it panicked",
        "run `tollgate doctor` to find the reason; `on_fault = \"allow\"` under `[hooks]` lets such writes through",
    )
}

/// How long to wait from now on, and what to print then.
fn last_words(started: Instant, settings: &Settings, fault: FaultAnswer<'_>) -> (Duration, Vec<u8>) {
    let deadline = settings.hooks.deadline.0;
    let too_slow = CliError::usage(
        format!("no answer within {} ms", deadline.as_millis()),
        "try again in a moment; if it fails again, run `tollgate doctor`",
    );
    let words = fault(settings, &too_slow);
    let words = words.map(|words| format!("{words}\n").into_bytes()).unwrap_or_default();
    (deadline.saturating_sub(started.elapsed()), words)
}

#[cfg(test)]
mod tests {
    use tollgate::settings::{HookSettings, OnFault};

    use super::*;
    use crate::words;

    fn blocked(settings: &Settings, error: &CliError) -> Option<Value> {
        (settings.hooks.on_fault == OnFault::Block).then(|| words::hook_fault(error).into())
    }

    fn timer() -> Timer {
        Timer::start(Instant::now(), &blocked)
    }

    #[test]
    fn a_panic_blocks_a_write() {
        let answer = timer().answered(&blocked, |_| std::panic::panic_any("a mistake in tollgate"));
        assert!(answer.expect("blocked").to_string().contains("panicked"));
    }

    #[test]
    fn a_setting_allows_writes_that_cannot_be_judged() {
        let answer = timer().answered(&blocked, |told| {
            let hooks = HookSettings { on_fault: OnFault::Allow, ..HookSettings::default() };
            told(&Settings { hooks, ..Settings::default() });
            Err(Fault::no_file("something").into())
        });
        assert_eq!(answer, None);
    }
}
