//! What the deliveries weigh that were read from the store, and which lanes wait for bytes.
//!
//! A lane learns what its next one weighs from a claim that did not get it, and asks again when the
//! budget allows that. The first in line that holds less than its part has what it waits for set
//! aside: the others leave it, so that a large one is not passed over by small ones for ever.

use std::collections::VecDeque;

use everhook_domain::budget::Budget;
use everhook_domain::id::EndpointId;

/// The bytes of the store's deliveries on this node, and who waits for some.
#[derive(Debug)]
pub(crate) struct Weights {
    budget: Budget,
    line: VecDeque<Waiting>,
}

/// A lane whose next delivery was not allowed.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    endpoint: EndpointId,
    /// What the lane holds.
    held: usize,
    /// What its next one weighs.
    next: usize,
}

impl Weights {
    /// Nothing is held.
    pub(crate) const fn new(budget: Budget) -> Self {
        Self { budget, line: VecDeque::new() }
    }

    /// A lane that held `before` holds `after`.
    pub(crate) fn change(&mut self, endpoint: EndpointId, before: usize, after: usize) {
        self.budget = self.budget.without(before).with(after);
        if let Some(waiting) = self.line.iter_mut().find(|waiting| waiting.endpoint == endpoint) {
            waiting.held = after;
        }
    }

    /// How many bytes are held.
    pub(crate) const fn held(&self) -> usize {
        self.budget.taken()
    }

    /// A claim has left a delivery of so many bytes waiting in a lane, or none. A lane that got
    /// others meanwhile has had its turn.
    pub(crate) fn left(&mut self, endpoint: EndpointId, next: Option<usize>, got: bool) {
        let place = self.place(endpoint);
        match (next, place) {
            (Some(next), Some(place)) if !got => self.line[place].next = next,
            (Some(next), _) => {
                let held = place.map_or(0, |place| self.line[place].held);
                self.forget(endpoint);
                self.line.push_back(Waiting { endpoint, held, next });
            }
            (None, _) => {
                self.forget(endpoint);
            }
        }
    }

    /// Nothing waits for bytes in this lane. Says whether that is news.
    pub(crate) fn forget(&mut self, endpoint: EndpointId) -> bool {
        let place = self.place(endpoint);
        place.and_then(|place| self.line.remove(place)).is_some()
    }

    /// Whether the lane may ask the store for more.
    pub(crate) fn may_ask(&self, endpoint: EndpointId) -> bool {
        self.place(endpoint).is_none_or(|place| {
            let Waiting { held, next, .. } = self.line[place];
            self.left_by_others(|other| other == endpoint).allows(held, next)
        })
    }

    /// What a claim for these lanes may take. They are sorted: those in line come first.
    pub(crate) fn claim<T>(&self, lanes: &mut [T], id: impl Fn(&T) -> EndpointId) -> Budget {
        lanes.sort_by_key(|lane| self.place(id(lane)).unwrap_or(usize::MAX));
        self.left_by_others(|other| lanes.iter().any(|lane| id(lane) == other))
    }

    /// The lanes in line, in order.
    pub(crate) fn line(&self) -> Vec<EndpointId> {
        self.line.iter().map(|waiting| waiting.endpoint).collect()
    }

    /// The budget without what is set aside, unless that is for one of `own`.
    fn left_by_others(&self, own: impl Fn(EndpointId) -> bool) -> Budget {
        let first = self.line.iter().find(|lane| self.budget.is_due(lane.held, lane.next));
        let aside = first.filter(|first| !own(first.endpoint)).map_or(0, |first| first.next);
        self.budget.with(aside)
    }

    fn place(&self, endpoint: EndpointId) -> Option<usize> {
        self.line.iter().position(|waiting| waiting.endpoint == endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: EndpointId = EndpointId::from_bits(1);
    const B: EndpointId = EndpointId::from_bits(2);
    const C: EndpointId = EndpointId::from_bits(3);

    fn weights(held: &[(EndpointId, usize)]) -> Weights {
        let mut weights = Weights::new(Budget::new(100));
        for (lane, bytes) in held {
            weights.change(*lane, 0, *bytes);
        }
        weights
    }

    #[test]
    fn who_waits_asks_again_when_it_fits() {
        let mut weights = weights(&[(A, 45)]);
        assert!(weights.may_ask(B), "nothing is known of it");
        weights.left(B, Some(60), false);
        assert!(!weights.may_ask(B));
        weights.change(A, 45, 40);
        assert!(weights.may_ask(B));
        weights.left(B, None, true);
        assert!(weights.line().is_empty());
    }

    #[test]
    fn small_ones_do_not_pass_over_a_large_one_for_ever() {
        let mut weights = weights(&[(A, 45)]);
        weights.left(B, Some(60), false);
        assert!(!weights.claim(&mut [C], |id| *id).allows(0, 1), "what it waits for is set aside");
        weights.change(A, 45, 39);
        assert!(weights.claim(&mut [C], |id| *id).allows(0, 1), "but no more than that");
        let mut lanes = [A, C, B];
        let budget = weights.claim(&mut lanes, |id| *id);
        assert_eq!((lanes, budget.allows(0, 60)), ([B, A, C], true), "and it comes first");
    }

    #[test]
    fn nothing_is_set_aside_for_a_lane_that_has_its_part() {
        let mut weights = weights(&[(A, 45)]);
        weights.left(A, Some(15), true);
        weights.change(A, 45, 45);
        assert!(!weights.may_ask(A));
        assert!(weights.claim(&mut [C], |id| *id).allows(0, 55));
    }

    #[test]
    fn who_got_some_stands_behind_the_others() {
        let mut weights = weights(&[(C, 90)]);
        weights.left(A, Some(20), false);
        weights.left(B, Some(20), false);
        weights.left(A, Some(30), false);
        assert_eq!(weights.line(), [A, B], "it keeps its place");
        weights.left(A, Some(30), true);
        assert_eq!(weights.line(), [B, A]);
    }

    #[test]
    fn one_that_is_larger_than_the_budget_goes_alone() {
        let mut weights = weights(&[(A, 1)]);
        weights.left(B, Some(101), false);
        assert!(!weights.may_ask(B));
        assert!(!weights.claim(&mut [A], |id| *id).allows(1, 1), "nothing more begins before it");
        weights.change(A, 1, 0);
        assert!(weights.may_ask(B));
    }
}
