//! The power-cut suite: the real binary over a disk that forgets what was not synced.
//!
//! As in the crash suite the server dies under load, and is started again; but all that it finds
//! then is what it had synced ([`disk`], `shim.c`), strictly or with pieces of what it had written
//! since, in any order. Whatever got a 2xx must be there. That this suite can fail is shown by
//! planting the bugs that it is for: no syncs, and the answer before the commit.

#[cfg(test)]
mod disk;
#[cfg(test)]
mod layer;
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

    use crate::disk::{Disk, Manner, copy};
    use crate::support::chance::{Chance, seed};
    use crate::support::check::{Broken, Violation, some};
    use crate::support::load::Said;
    use crate::support::receiver::Target;
    use crate::support::server::Env;
    use crate::support::world::was_killed;
    use crate::support::{World, alone, pause, tell};

    const CRASH_AT: &str = "EVERHOOK_CRASH_AT";
    const PLANT: &str = "EVERHOOK_PLANT";
    const DATABASE: &str = "everhook.db";
    /// Cuts at random instants, for each manner of the disk.
    const RANDOM_CUTS: u32 = 15;
    /// More than an empty database has: what is beyond went through the WAL and a checkpoint.
    const CHECKPOINTED_BYTES: u64 = 1 << 20;
    /// How long nothing can be written.
    const OUTAGE: Duration = Duration::from_secs(3);
    /// Lines logged in an outage.
    const OUTAGE_LINES_MAX: usize = 50;
    /// A start takes about so long.
    const START_MS: u64 = 60;
    /// The steps around a commit and around recording.
    const STEPS: [Step; 7] = [
        Step::CommitBegin,
        Step::CommitBefore,
        Step::CommitAfter,
        Step::AnswerBefore,
        Step::SettleBefore,
        Step::SettleAfter,
        Step::Lapsed,
    ];

    /// A world on a disk.
    struct Case {
        world: World,
        disk: Disk,
        manner: Manner,
        chance: Chance,
        seed: u64,
        plant: Option<Plant>,
    }

    impl Case {
        /// Starts a server on an empty disk.
        fn new(name: &str, manner: Manner, plant: Option<Plant>) -> Self {
            let disk = Disk::new(name);
            let seed = seed();
            let world = World::new(disk.beside("log"), seed);
            let mut case = Self { world, disk, manner, chance: Chance::new(seed), seed, plant };
            let (files, env) = case.mount(None);
            case.world.start_ready(&files, env);
            case
        }

        fn mount(&mut self, at: Option<&str>) -> (PathBuf, Env) {
            let mounted = self.disk.mount(self.manner, self.chance.next());
            let mut env = mounted.env;
            env.extend(at.map(|at| (CRASH_AT, OsString::from(at))));
            env.extend(self.plant.map(|plant| (PLANT, OsString::from(plant.name()))));
            (mounted.files, env)
        }

        /// Presses events into the server and kills it at a random instant.
        fn press_and_kill(&mut self) {
            let accepted = self.chance.between(1, 200);
            let moment = Duration::from_micros(self.chance.below(4_000));
            self.world.press_and_kill(accepted, moment);
        }

        /// Cuts the power of a server that is dead, and starts it on what the disk holds.
        fn recover(&mut self) -> Vec<Violation> {
            self.disk.cut();
            let mut found = self.integrity();
            let (files, env) = self.mount(None);
            found.extend(self.world.recover(&files, env));
            found
        }

        fn recover_well(&mut self, after: &str) {
            let (found, manner) = (self.recover(), self.manner);
            assert!(found.is_empty(), "{manner:?}, seed {}, {after}: {}", self.seed, some(&found));
        }

        /// Lets SQLite judge a copy of what the disk holds.
        fn integrity(&self) -> Vec<Violation> {
            let copied = self.disk.beside("copy");
            std::fs::create_dir(&copied).expect("ours");
            copy(&self.disk.image(), &copied);
            let verdict = Connection::open(copied.join(DATABASE)).and_then(|database| {
                database.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0))
            });
            std::fs::remove_dir_all(&copied).expect("ours");
            let broken = Broken::Unusable;
            match verdict {
                Ok(verdict) if verdict == "ok" => Vec::new(),
                Ok(verdict) => vec![Violation { broken, what: verdict }],
                Err(error) => vec![Violation { broken, what: error.to_string() }],
            }
        }

        /// Demands that nothing is wrong with the whole of it.
        fn end(mut self) {
            let found = self.world.judge_all();
            assert!(found.is_empty(), "seed {}, in the end: {}", self.seed, some(&found));
            tell(&self.world.summary());
        }
    }

    fn at_any_instant(name: &str, manner: Manner) {
        let _machine = alone();
        let mut case = Case::new(name, manner, None);
        for cut in 1..=RANDOM_CUTS {
            case.press_and_kill();
            case.recover_well(&format!("cut {cut}"));
        }
        let database = case.disk.image().join(DATABASE).metadata().expect("it is there").len();
        assert!(database > CHECKPOINTED_BYTES, "{database} bytes: no checkpoint came in between");
        case.end();
    }

    #[test]
    fn at_any_instant_nothing_that_was_accepted_is_lost() {
        at_any_instant("cut-strict", Manner::Strict);
    }

    #[test]
    fn at_any_instant_half_written_sectors_do_no_harm() {
        at_any_instant("cut-torn", Manner::Torn);
    }

    fn at_each_step(name: &str, manner: Manner) {
        let _machine = alone();
        let mut case = Case::new(name, manner, None);
        for step in STEPS {
            for (least, most) in [(1, 4), (5, 40)] {
                let nth = if step == Step::Lapsed { 1 } else { case.chance.between(least, most) };
                let at = format!("{}:{nth}", step.name());
                if step == Step::Lapsed {
                    case.press_and_kill();
                } else {
                    case.world.kill();
                }
                case.disk.cut();
                let (files, env) = case.mount(Some(&at));
                match case.world.start(&files, env) {
                    Err(ended) => assert!(was_killed(&ended), "{at}: {}", ended.status),
                    Ok(()) => {
                        let ended = case.world.press_until_end(|_| ());
                        let killed = ended.is_some_and(|ended| was_killed(&ended));
                        assert!(killed, "the step {at} was not reached");
                    }
                }
                case.recover_well(&at);
            }
        }
        case.end();
    }

    #[test]
    fn at_each_step_nothing_that_was_accepted_is_lost() {
        at_each_step("cut-steps-strict", Manner::Strict);
    }

    #[test]
    fn at_each_step_half_written_sectors_do_no_harm() {
        at_each_step("cut-steps-torn", Manner::Torn);
    }

    /// case 3: for a while nothing can be written. Nothing is accepted then, nothing is lost, and
    /// the same process goes on when there is room again.
    #[test]
    fn case_003_a_full_disk_is_ridden_out() {
        let _machine = alone();
        let mut case = Case::new("full", Manner::Strict, None);
        let full = case.disk.full_flag();
        let before = case.world.lines_logged();
        case.world.press(|answers| {
            answers.wait(Said::Accepted, 50).expect("it accepts");
            std::fs::write(&full, "").expect("ours");
            answers.wait(Said::Later, 50).expect("it refuses");
            pause(OUTAGE);
            std::fs::remove_file(&full).expect("ours");
            answers.wait(Said::Accepted, 200).expect("it accepts again");
        });
        let found = case.world.drain_and_judge();
        assert!(found.is_empty(), "{}", some(&found));
        let lines = case.world.lines_logged() - before;
        assert!(lines <= OUTAGE_LINES_MAX, "{lines} log lines in an outage");
        case.press_and_kill();
        case.recover_well("after a full disk");
        case.end();
    }

    /// After a sync that failed nobody knows what is on the disk: the process ends by itself, and
    /// the next one goes on with what the disk holds.
    #[test]
    fn a_broken_sync_ends_the_process() {
        let _machine = alone();
        let mut case = Case::new("broken", Manner::Torn, None);
        for round in 1..=3 {
            let broken = case.disk.broken_flag();
            let ended = case.world.press_until_end(|answers| {
                answers.wait(Said::Accepted, 100).expect("it accepts");
                std::fs::write(&broken, "").expect("ours");
            });
            let code = ended.expect("it ends by itself").status.code();
            assert_eq!(code, Some(1), "it ends with the code for a failure while running");
            std::fs::remove_file(&broken).expect("ours");
            case.recover_well(&format!("broken sync {round}"));
        }
        case.end();
    }

    /// Deaths that follow each other before anything has recovered, some during the start.
    #[test]
    fn a_cut_while_recovering_loses_nothing() {
        let _machine = alone();
        let mut case = Case::new("cut-again", Manner::Torn, None);
        for round in 1..=5 {
            case.press_and_kill();
            for _ in 0..3 {
                case.disk.cut();
                let moment = Duration::from_millis(case.chance.below(START_MS));
                let (files, env) = case.mount(None);
                case.world.start_and_kill(&files, env, moment);
            }
            case.recover_well(&format!("round {round}"));
        }
        case.end();
    }

    /// case 1, over this disk: interruptions are counted durably, to the last.
    #[test]
    fn a_deadly_payload_is_given_up() {
        let _machine = alone();
        let mut case = Case::new("cut-poison", Manner::Strict, None);
        let Case { world, disk, manner, chance, .. } = &mut case;
        let deaths = world.poison(|| {
            disk.cut();
            let mounted = disk.mount(*manner, chance.next());
            (mounted.files, mounted.env)
        });
        assert_eq!(deaths, 20);
        let found = world.drain_and_judge();
        assert!(found.is_empty(), "{}", some(&found));
        assert_eq!(world.most_interrupted_but(Target::Fatal), 0);
        case.end();
    }

    /// Runs the same scenario with a bug in it, and demands that a loss is seen.
    fn check(plant: Plant) {
        let _machine = alone();
        let mut case = Case::new(&format!("cut-{}", plant.name()), Manner::Strict, Some(plant));
        let mut found = Vec::new();
        for cut in 1..=RANDOM_CUTS {
            case.press_and_kill();
            found.extend(case.recover());
            if found.iter().any(|violation| violation.broken == Broken::Lost) {
                tell(&format!("{} is found at cut {cut}: {:?}", plant.name(), found.first()));
                return;
            }
        }
        panic!("{} was not found: {}", plant.name(), some(&found));
    }

    #[test]
    fn with_syncs_off_the_suite_fails() {
        check(Plant::NoSync);
    }

    #[test]
    fn with_the_answer_before_the_commit_the_suite_fails() {
        check(Plant::AnswerBeforeCommit);
    }
}
