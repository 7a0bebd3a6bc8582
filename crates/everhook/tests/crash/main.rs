//! The crash suite: the real binary is killed under load, at every named step and at random
//! instants, and nothing that it accepted is lost.
//!
//! One data directory lives through all the deaths of a test. After each, the server is started
//! again, everything is waited for, and [`support::check`] judges: whatever got a 2xx arrived with
//! the same id and bytes, repeats are only what was on the wire, recovered within one lease, never
//! more than seven numbered attempts, counted without gaps. That it can fail is shown by planted
//! bugs, and by [`judge`]. What a key alone promises is in [`keys`].

#[cfg(test)]
mod judge;
#[cfg(test)]
mod keys;
#[cfg(test)]
#[path = "../support/mod.rs"]
mod support;

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::PathBuf;
    use std::time::Duration;

    use everhook_domain::fault::{Plant, Step};
    use rusqlite::Connection;

    use crate::support::chance::{Chance, seed};
    use crate::support::check::{Broken, SUSPECT_FROM, some};
    use crate::support::folder::Folder;
    use crate::support::load::Said;
    use crate::support::receiver::Target;
    use crate::support::world::was_killed;
    use crate::support::{World, alone, pause, tell};

    pub(crate) const CRASH_AT: &str = "EVERHOOK_CRASH_AT";
    const PLANT: &str = "EVERHOOK_PLANT";
    /// Deaths at random instants.
    const RANDOM_DEATHS: u32 = 50;
    /// Longer than the server waits for a lock.
    const OUTAGE: Duration = Duration::from_secs(7);
    /// Lines logged in an outage.
    const OUTAGE_LINES_MAX: usize = 50;
    /// A start takes about so long.
    const START_MS: u64 = 40;
    /// How often a step is passed before the process dies at it; chosen within these.
    const PASSES: [(u64, u64); 4] = [(1, 3), (4, 15), (16, 40), (41, 90)];

    /// A world with its data.
    pub(crate) struct Case {
        pub(crate) world: World,
        pub(crate) data: PathBuf,
        pub(crate) chance: Chance,
        seed: u64,
        _folder: Folder,
    }

    impl Case {
        /// Starts a server on new data.
        pub(crate) fn new(name: &str) -> Self {
            let folder = Folder::new(name);
            let seed = seed();
            let mut world = World::new(folder.join("log"), seed);
            let data = folder.join("data");
            world.start_ready(&data, Vec::new());
            Self { world, data, chance: Chance::new(seed), seed, _folder: folder }
        }

        pub(crate) fn press_and_kill(&mut self) {
            let accepted = self.chance.between(1, 250);
            let moment = Duration::from_micros(self.chance.below(4_000));
            self.world.press_and_kill(accepted, moment);
        }

        /// Starts again, waits for everything, and demands that nothing is wrong.
        fn recover(&mut self, after: &str) {
            let found = self.world.recover(&self.data, Vec::new());
            assert!(found.is_empty(), "seed {}, after {after}: {}", self.seed, some(&found));
        }

        /// Demands that nothing is wrong with the whole of it.
        fn end(mut self) {
            let found = self.world.judge_all();
            assert!(found.is_empty(), "seed {}, in the end: {}", self.seed, some(&found));
            tell(&self.world.summary());
        }
    }

    /// case 1, "no peer passes" 1 and 5: each named step, three times and more.
    #[test]
    fn no_step_is_the_wrong_one_to_die_at() {
        let _machine = alone();
        let mut case = Case::new("crash-steps");
        for step in Step::ALL {
            for (least, most) in PASSES {
                // Leases lapse once a start, so that step is passed no more often.
                let nth = if step == Step::Lapsed { 1 } else { case.chance.between(least, most) };
                let at = format!("{}:{nth}", step.name());
                if step == Step::Lapsed {
                    case.press_and_kill();
                } else {
                    case.world.kill();
                }
                match case.world.start(&case.data, vec![(CRASH_AT, OsString::from(&at))]) {
                    Err(ended) => assert!(was_killed(&ended), "{at}: {}", ended.status),
                    Ok(()) => {
                        let ended = case.world.press_until_end(|_| ());
                        let killed = ended.is_some_and(|ended| was_killed(&ended));
                        assert!(killed, "the step {at} was not reached");
                    }
                }
                case.recover(&at);
            }
        }
        case.end();
    }

    /// case 1, "no peer passes" 1: between any two of them.
    #[test]
    fn no_instant_is_the_wrong_one_to_die_at() {
        let _machine = alone();
        let mut case = Case::new("crash-instants");
        for death in 1..=RANDOM_DEATHS {
            case.press_and_kill();
            case.recover(&format!("death {death}"));
        }
        case.end();
    }

    /// Deaths that follow each other before anything has recovered, some during the start.
    #[test]
    fn dying_again_while_recovering_loses_nothing() {
        let _machine = alone();
        let mut case = Case::new("crash-again");
        for round in 1..=5 {
            case.press_and_kill();
            for _ in 0..3 {
                let moment = Duration::from_millis(case.chance.below(START_MS));
                case.world.start_and_kill(&case.data, Vec::new(), moment);
            }
            case.world.start_ready(&case.data, Vec::new());
            case.press_and_kill();
            case.recover(&format!("round {round}"));
        }
        case.end();
    }

    /// What the first start makes is whole or made again.
    #[test]
    fn a_first_start_can_be_cut_off() {
        let _machine = alone();
        let folder = Folder::new("crash-first-start");
        let (seed, mut chance) = (seed(), Chance::new(seed()));
        for start in 1..=20 {
            let data = folder.join(&format!("data-{start}"));
            let mut world = World::new(folder.join("log"), seed);
            let moment = Duration::from_millis(chance.below(START_MS));
            world.start_and_kill(&data, Vec::new(), moment);
            world.start_ready(&data, Vec::new());
            world.press_and_kill(3, Duration::ZERO);
            let found = world.recover(&data, Vec::new());
            assert!(found.is_empty(), "killed {moment:?} after its start: {}", some(&found));
        }
    }

    /// A payload that kills the process is given up after 20 deaths, and from the third on it takes
    /// no other delivery with it.
    #[test]
    fn a_deadly_payload_dies_alone() {
        let _machine = alone();
        let mut case = Case::new("crash-poison");
        case.press_and_kill();
        case.world.start_ready(&case.data, Vec::new());
        let deaths = case.world.poison(|| (case.data.clone(), Vec::new()));
        assert_eq!(deaths, 20);
        let found = case.world.drain_and_judge();
        assert!(found.is_empty(), "{}", some(&found));
        let most = case.world.most_interrupted_but(Target::Fatal);
        assert!(most <= SUSPECT_FROM, "an innocent delivery was interrupted {most} times");
        case.end();
    }

    /// case 3: the database is locked under load for a while, then free again.
    #[test]
    fn case_003_a_locked_database_is_waited_for() {
        let _machine = alone();
        let mut case = Case::new("crash-locked");
        let other = Connection::open(case.data.join("everhook.db")).expect("it is there");
        let before = case.world.lines_logged();
        case.world.press(|answers| {
            answers.wait(Said::Accepted, 50).expect("it accepts");
            other.execute_batch("BEGIN IMMEDIATE").expect("the lock is free now and then");
            pause(OUTAGE);
            other.execute_batch("COMMIT").expect("we hold it");
            answers.wait(Said::Accepted, 50).expect("it accepts again");
        });
        drop(other);
        let found = case.world.drain_and_judge();
        assert!(found.is_empty(), "{}", some(&found));
        let lines = case.world.lines_logged() - before;
        assert!(lines <= OUTAGE_LINES_MAX, "{lines} log lines in an outage");
        case.world.kill();
        case.recover("the outage");
        case.end();
    }

    /// Plants a bug and demands that it is found, as one of these.
    fn check(plant: Plant, expected: &[Broken]) {
        let _machine = alone();
        let mut case = Case::new(&format!("crash-{}", plant.name()));
        let planted = || vec![(PLANT, OsString::from(plant.name()))];
        let mut found = Vec::new();
        for _ in 0..6 {
            case.world.kill();
            case.world.start_ready(&case.data, planted());
            case.press_and_kill();
            found.extend(case.world.recover(&case.data, planted()));
            if found.iter().any(|violation| expected.contains(&violation.broken)) {
                return;
            }
        }
        panic!("{} was not found: {}", plant.name(), some(&found));
    }

    /// Plants a bug that only a death between two commits brings to light.
    fn check_at_a_commit(plant: Plant, expected: &[Broken]) {
        let _machine = alone();
        let mut case = Case::new(&format!("crash-{}", plant.name()));
        let mut found = Vec::new();
        for _ in 0..20 {
            case.world.kill();
            let at = format!("{}:{}", Step::CommitBefore.name(), case.chance.between(4, 40));
            let planted =
                vec![(PLANT, OsString::from(plant.name())), (CRASH_AT, OsString::from(at))];
            case.world.start_ready(&case.data, planted);
            case.world.press_until_end(|_| ()).expect("it dies at a commit");
            found.extend(case.world.recover(&case.data, Vec::new()));
            if found.iter().any(|violation| expected.contains(&violation.broken)) {
                return;
            }
        }
        panic!("{} was not found: {}", plant.name(), some(&found));
    }

    #[test]
    fn a_key_that_is_taken_before_the_signature_is_verified_is_found() {
        check(Plant::DedupeBeforeVerification, &[Broken::Changed]);
    }

    #[test]
    fn a_webhook_that_is_remembered_before_it_is_stored_is_found() {
        check_at_a_commit(Plant::MarkedBeforeStored, &[Broken::Lost]);
    }

    #[test]
    fn a_key_that_forgets_its_source_is_found() {
        check(Plant::KeyWithoutSource, &[Broken::Lost]);
    }

    #[test]
    fn an_interruption_that_counts_as_attempt_is_found() {
        check(Plant::InterruptionCounts, &[Broken::Numbers]);
    }

    #[test]
    fn a_body_that_is_written_anew_is_found() {
        check(Plant::BodyReserialised, &[Broken::Changed]);
    }

    #[test]
    fn an_attempt_before_its_time_is_found() {
        check(Plant::StepEarly, &[Broken::Early]);
    }

    #[test]
    fn a_claim_that_leaves_what_it_claims_is_found() {
        check(Plant::DuplicateClaim, &[Broken::Repeated, Broken::Uncounted]);
    }
}
