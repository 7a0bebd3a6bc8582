//! The end of one delivery: its state, its attempts and what its receiver saw agree.

use std::collections::BTreeSet;

use everhook_domain::attempt::{Attempt, Trigger};
use everhook_domain::delivery::{CancelReason, Dead, DeadReason, SUSPECT_FROM, State};
use everhook_domain::endpoint::EndpointState;
use everhook_domain::event::Nature;
use everhook_domain::id::{EndpointId, EventId};
use everhook_domain::time::millis;
use everhook_store::DeliveryDetail;

use crate::book::{ActBook, Answered, Book, Deed, Request};
use crate::check::was_gone;
use crate::world::World;

/// How long nothing else begins beside a suspect, unless that ends before.
const ALONE_MS: i64 = 100;

/// A delivery and all that is known of it.
pub(crate) struct Case<'a> {
    /// Its world.
    pub(crate) world: &'a World,
    /// The book of that world.
    pub(crate) book: &'a Book,
    /// What the store says.
    pub(crate) detail: &'a DeliveryDetail,
    /// What its receiver saw, in order.
    pub(crate) sent: &'a [&'a Request],
}

/// Which request each attempt was, by places; the others were interrupted.
pub(crate) struct Matched(pub(crate) Vec<usize>);

impl Case<'_> {
    /// The event.
    pub(crate) fn event(&self) -> EventId {
        self.detail.record.id.event()
    }

    /// The endpoint.
    pub(crate) fn endpoint(&self) -> EndpointId {
        self.detail.record.endpoint
    }

    /// What was, or may have been, done to it.
    pub(crate) fn acts(&self, deed: Deed) -> impl Iterator<Item = &ActBook> {
        let (event, endpoint) = (self.event(), self.endpoint());
        self.book.acts.iter().filter(move |act| act.deed == deed && act.concerns(event, endpoint))
    }

    /// Whether it is a test.
    fn is_test(&self) -> bool {
        Nature::of(self.detail.record.event_type.as_str()) == Nature::Test
    }

    /// How many attempts a round has: one of a test, whoever sends it.
    fn steps(&self) -> u32 {
        if self.is_test() { 1 } else { self.world.profile.policy.schedule.steps() }
    }

    /// How many processes have died.
    fn crashes(&self) -> usize {
        self.book.ends.iter().flatten().filter(|end| !end.clean).count()
    }

    /// Looks at everything but the times.
    pub(crate) fn check(&self) -> Result<Matched, String> {
        self.check_counters()?;
        self.check_state()?;
        let matched = self.match_requests()?;
        self.check_interrupted(&matched)?;
        self.check_alone(&matched)?;
        self.check_replays()?;
        self.check_cancels()?;
        self.check_rounds()?;
        self.check_swept()?;
        Ok(matched)
    }

    /// Attempts are numbered without a gap, rounds are no longer than the schedule, and the
    /// counters say what the attempts say.
    fn check_counters(&self) -> Result<(), String> {
        let progress = &self.detail.record.progress;
        let attempts = &self.detail.attempts;
        let numbers = attempts.iter().map(|attempt| attempt.number as usize);
        if !numbers.eq(1..=attempts.len()) {
            let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
            return Err(format!("its attempts are numbered {numbers:?}"));
        }
        if progress.number as usize != attempts.len() {
            return Err(format!("{} attempts, counted {}", attempts.len(), progress.number));
        }
        let steps = self.steps();
        let rounds: BTreeSet<u32> = attempts.iter().map(|attempt| attempt.round).collect();
        for round in rounds.iter().copied() {
            let of_round: Vec<&Attempt> = attempts.iter().filter(|a| a.round == round).collect();
            if of_round.len() > steps as usize {
                return Err(format!("{} attempts in round {round}", of_round.len()));
            }
            let (_, before) = of_round.split_last().ok_or("no attempt")?;
            if before.iter().any(|attempt| attempt.report.outcome.is_success()) {
                return Err(format!("round {round} went on after a success"));
            }
        }
        if !attempts.is_sorted_by_key(|attempt| attempt.round)
            || rounds.last().is_some_and(|last| *last > progress.round)
        {
            return Err(format!("rounds {rounds:?}, counted {}", progress.round));
        }
        let in_round = attempts.iter().filter(|attempt| attempt.round == progress.round).count();
        if progress.step as usize != in_round {
            return Err(format!("{in_round} attempts in the round, counted {}", progress.step));
        }
        let interruptions_max = self.world.profile.policy.interruptions_max;
        let crashes = self.crashes();
        if progress.interruptions as usize > crashes || progress.interruptions > interruptions_max {
            return Err(format!("{} interruptions, {crashes} crashes", progress.interruptions));
        }
        Ok(())
    }

    /// It has ended, for a reason.
    fn check_state(&self) -> Result<(), String> {
        let record = &self.detail.record;
        let last = self.detail.attempts.last();
        let last_success = last.map(|attempt| attempt.report.outcome.is_success());
        match record.state {
            State::Due(_) | State::Leased(_) => Err(format!("has not ended: {:?}", record.state)),
            State::Delivered if last_success == Some(true) => Ok(()),
            State::Delivered => Err("delivered, and no attempt has succeeded".to_owned()),
            State::Dead(Dead { reason: DeadReason::Exhausted, acknowledged_at }) => {
                if last_success != Some(false) || record.progress.step != self.steps() {
                    return Err(format!("dead after {} attempts", record.progress.step));
                }
                self.check_acknowledged(self.is_test(), acknowledged_at.is_some())
            }
            State::Dead(Dead { reason: DeadReason::Interrupted, .. }) => {
                let max = self.world.profile.policy.interruptions_max;
                match record.progress.interruptions == max {
                    true => Ok(()),
                    false => {
                        Err(format!("dead after {} interruptions", record.progress.interruptions))
                    }
                }
            }
            State::Cancelled(reason) => self.check_reason(reason),
        }
    }

    /// A test that failed is acknowledged; anything else by those who were asked to do so.
    fn check_acknowledged(&self, test: bool, acknowledged: bool) -> Result<(), String> {
        let asked = test || self.acts(Deed::Acknowledge).next().is_some();
        let done = self.acts(Deed::Acknowledge).any(|act| {
            let replayed = self.acts(Deed::Replay).any(|replay| replay.to > act.from);
            act.answered == Answered::Done && !replayed
        });
        match acknowledged {
            true if !asked => Err("nobody has acknowledged it".to_owned()),
            false if test || done => Err("it is not acknowledged".to_owned()),
            true | false => Ok(()),
        }
    }

    fn check_reason(&self, reason: CancelReason) -> Result<(), String> {
        let state = match reason {
            CancelReason::Requested => {
                return match self.acts(Deed::Cancel).next() {
                    Some(_) => Ok(()),
                    None => Err("cancelled, and nobody has asked for it".to_owned()),
                };
            }
            CancelReason::EndpointDisabled => EndpointState::Disabled,
            CancelReason::EndpointDeleted => EndpointState::Deleted,
        };
        let index = self.book.index_of(self.endpoint()).ok_or("no such endpoint")?;
        let mut states = self.book.endpoints[index].states.iter();
        match states.any(|(_, _, was)| *was == state) {
            true => Ok(()),
            false => Err(format!("cancelled, and its endpoint was never {state:?}")),
        }
    }

    /// Every attempt was one request, with the same start and the same end.
    fn match_requests(&self) -> Result<Matched, String> {
        let mut matched = Vec::with_capacity(self.detail.attempts.len());
        for attempt in &self.detail.attempts {
            let report = &attempt.report;
            let fits = |request: &&Request| {
                request.number == attempt.number
                    && request.steady == report.started_at
                    && request.url == report.url
                    && request.end.as_ref().is_some_and(|end| {
                        end.outcome.as_ref() == Some(&report.outcome)
                            && millis(report.duration) == end.at_ms - request.at_ms
                    })
            };
            // Of two that look alike, the earlier one was interrupted.
            let place = (0..self.sent.len())
                .rfind(|place| !matched.contains(place) && fits(&self.sent[*place]));
            let number = attempt.number;
            matched.push(place.ok_or_else(|| format!("nobody saw attempt {number}: {report:?}"))?);
        }
        if !matched.is_sorted() {
            return Err(format!("attempts were not made in their order: {matched:?}"));
        }
        Ok(Matched(matched))
    }

    /// A request that is no attempt was under way when its process died, and is made again under
    /// its number.
    fn check_interrupted(&self, matched: &Matched) -> Result<(), String> {
        let mut generations = BTreeSet::new();
        for (place, request) in self.sent.iter().enumerate() {
            if matched.0.contains(&place) {
                continue;
            }
            let (number, generation) = (request.number, request.generation);
            let end = self.book.ends.get(generation as usize - 1).copied().flatten();
            let died =
                end.is_some_and(|end| !end.clean && (request.order < end.order || request.zombie));
            if !died {
                return Err(format!("request #{number} of a sound process was not recorded"));
            }
            if !generations.insert(generation) {
                return Err(format!("two requests of process {generation} were not recorded"));
            }
            // What a zombie sends may come after what took its place.
            let before = matched.0.iter().filter(|recorded| **recorded < place).count();
            if !request.zombie && number as usize != before + 1 {
                return Err(format!("request #{number} after {before} attempts"));
            }
        }
        let progress = &self.detail.record.progress;
        if progress.round == 1 && (progress.interruptions as usize) < generations.len() {
            let noted = progress.interruptions;
            return Err(format!("{} interrupted requests, noted {noted}", generations.len()));
        }
        Ok(())
    }

    /// A delivery that was under way at several deaths is tried alone.
    fn check_alone(&self, matched: &Matched) -> Result<(), String> {
        for (place, request) in self.sent.iter().enumerate().filter(|(_, sent)| !sent.zombie) {
            // A replay of what had been cancelled begins a round, in which it is no suspect.
            let replays = self.acts(Deed::Replay).filter(|act| act.from < request.order);
            let replayed = replays.map(|act| act.to).max().unwrap_or(0);
            let before = self.sent[..place].iter().enumerate();
            let deaths: BTreeSet<u32> = before
                .filter(|(place, sent)| sent.number == request.number && !matched.0.contains(place))
                .filter(|(_, sent)| sent.order > replayed)
                .map(|(_, sent)| sent.generation)
                .collect();
            if deaths.len() < SUSPECT_FROM as usize {
                continue;
            }
            let ended = request.end.as_ref().map_or(u64::MAX, |end| end.order);
            let beside = self.book.requests.iter().find(|other| {
                other.generation == request.generation
                    && (request.order + 1..ended).contains(&other.order)
                    && other.at_ms < request.at_ms + ALONE_MS
            });
            if let Some(other) = beside {
                let number = request.number;
                return Err(format!("#{number} is a suspect, and {} was beside it", other.event));
            }
        }
        Ok(())
    }

    /// Every replay is one more attempt, and none comes from nowhere.
    fn check_replays(&self) -> Result<(), String> {
        let attempts = &self.detail.attempts;
        let replayed = attempts.iter().filter(|attempt| attempt.trigger == Trigger::Replay).count();
        let asked = self.acts(Deed::Replay).count();
        if replayed > asked {
            return Err(format!("{replayed} attempts by replay, {asked} replays"));
        }
        if self.detail.record.progress.round as usize > 1 + asked {
            let round = self.detail.record.progress.round;
            return Err(format!("round {round} after {asked} replays"));
        }
        // A round that was given up for its interruptions takes with it what it owed.
        if self.crashes() >= self.world.profile.policy.interruptions_max as usize {
            return Ok(());
        }
        for act in self.acts(Deed::Replay).filter(|act| act.answered == Answered::Done) {
            let cancelled = self.acts(Deed::Cancel).any(|cancel| cancel.to > act.from);
            if cancelled || was_gone(self.book, self.endpoint(), act.from) {
                continue;
            }
            let later = self
                .acts(Deed::Replay)
                .filter(|other| other.answered == Answered::Done && other.from >= act.from);
            let later = later.count();
            let started = self.sent.iter().filter(|request| request.order > act.from).count();
            if started < later {
                return Err(format!("{started} requests after {later} replays"));
            }
        }
        Ok(())
    }

    /// A new round begins only when the one before has ended.
    fn check_rounds(&self) -> Result<(), String> {
        let interrupted = self.crashes() >= self.world.profile.policy.interruptions_max as usize;
        let cancelled = self.acts(Deed::Cancel).next().is_some();
        if interrupted || cancelled || was_gone(self.book, self.endpoint(), 0) {
            return Ok(());
        }
        let steps = self.steps() as usize;
        let attempts = &self.detail.attempts;
        for pair in attempts.windows(2) {
            let round = pair[0].round;
            let ended = pair[0].report.outcome.is_success()
                || attempts.iter().filter(|attempt| attempt.round == round).count() == steps;
            if pair[1].round != round && !ended {
                return Err(format!("round {round} was left after attempt {}", pair[0].number));
            }
        }
        Ok(())
    }

    /// What waited for an endpoint when that was disabled is not sent when it is enabled again.
    fn check_swept(&self) -> Result<(), String> {
        let index = self.book.index_of(self.endpoint()).ok_or("no such endpoint")?;
        let told = self.book.accepted.get(&self.event()).map(|told| told.order);
        let first = self.sent.first().map(|request| request.order);
        let Some(known) = [told, first].into_iter().flatten().min() else { return Ok(()) };
        for (gone, _, state) in &self.book.endpoints[index].states {
            if state.gone().is_none() || *gone < known {
                continue;
            }
            let replay = self.acts(Deed::Replay).any(|replay| replay.to > *gone);
            if !replay && self.sent.iter().any(|request| request.order > *gone) {
                return Err("it was sent although its endpoint had been disabled".to_owned());
            }
        }
        Ok(())
    }

    /// After a cancellation at most what was leased is still sent.
    fn check_cancels(&self) -> Result<(), String> {
        for act in self.acts(Deed::Cancel).filter(|act| act.answered == Answered::Done) {
            let replay = self.acts(Deed::Replay).any(|replay| replay.to > act.from);
            let started = self.sent.iter().filter(|request| request.order > act.to);
            let started = started.filter(|request| !request.zombie).count();
            if !replay && started > 1 {
                return Err(format!("{started} requests after it was cancelled"));
            }
        }
        Ok(())
    }
}
