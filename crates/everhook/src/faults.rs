//! Faults on order, for the test suites: a named crash point and a planted bug. Only in builds with
//! the feature `faults`, which no release has.

use std::sync::atomic::{AtomicU64, Ordering};

use everhook_domain::fault::{self, Fate, Plant, Step};

use crate::environment::Environment;
use crate::exit::Failure;

/// `<step>` or `<step>:<nth>`: the process kills itself when the step is reached so often.
const CRASH_AT: &str = "EVERHOOK_CRASH_AT";
/// The name of a bug.
const PLANT: &str = "EVERHOOK_PLANT";

/// Installs what the environment asks for.
///
/// # Errors
/// It asks for something that there is not.
pub(crate) fn install(environment: &Environment) -> Result<(), Failure> {
    let crash = environment.get(CRASH_AT)?.map(crash_point).transpose()?;
    let plant = environment.get(PLANT)?.map(plant).transpose()?;
    let left = AtomicU64::new(crash.map_or(0, |(_, nth)| nth));
    let hook = move |step| {
        if crash.is_some_and(|(at, _)| at == step) && left.fetch_sub(1, Ordering::Relaxed) == 1 {
            kill_self();
        }
        Fate::Go
    };
    fault::install_for_process(plant, Box::new(hook));
    Ok(())
}

fn crash_point(text: &str) -> Result<(Step, u64), Failure> {
    let (name, nth) = text.split_once(':').unwrap_or((text, "1"));
    let nth = nth.parse().ok().filter(|nth| *nth > 0);
    Step::from_name(name).zip(nth).ok_or_else(|| {
        let steps: Vec<_> = Step::ALL.into_iter().map(Step::name).collect();
        let steps = steps.join(", ");
        Failure::usage(format!("{CRASH_AT}={text}: write <step>:<nth>; the steps are {steps}"))
    })
}

fn plant(name: &str) -> Result<Plant, Failure> {
    Plant::from_name(name).ok_or_else(|| {
        let plants: Vec<_> = Plant::ALL.into_iter().map(Plant::name).collect();
        Failure::usage(format!("{PLANT}={name}: the plants are {}", plants.join(", ")))
    })
}

/// Ends the process as `kill -9` does: nothing is flushed, nothing is dropped.
fn kill_self() {
    // It cannot fail: a process may always signal itself.
    let _killed =
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    // The signal is on its way; nothing may happen any more until it arrives.
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        assert_eq!(crash_point("commit-before").ok(), Some((Step::CommitBefore, 1)));
        assert_eq!(crash_point("settle-after:12").ok(), Some((Step::SettleAfter, 12)));
        for wrong in ["", "nowhere", "claimed:0", "claimed:x", "claimed:"] {
            assert!(crash_point(wrong).is_err(), "{wrong}");
        }
        assert_eq!(plant("step-early").ok(), Some(Plant::StepEarly));
        assert!(plant("none").is_err());
    }
}
