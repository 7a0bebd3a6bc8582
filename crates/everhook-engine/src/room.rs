//! The room of one lane for deliveries that are handed over instead of read from the table.
//!
//! A place is taken before the commit and given back when the delivery's attempt has ended. What is
//! limited per lane is the number that has not begun; what is limited in all is the bytes that are
//! held, shared among the lanes by [`Budget`]. All of it is counted by atomics, because publishers
//! ask from their own threads.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst,
};

use everhook_domain::budget::Budget;
use everhook_domain::time::Timestamp;
use everhook_store::{Offer, Permit};
use tokio::sync::Notify;

/// What a lane answers to an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// Nothing is taken: paused, failing, or the table comes first.
    Closed,
    /// So many may wait; more are declined, because room will not come soon.
    Slow(u32),
    /// So many may wait; for more it is worth waiting.
    Fast(u32),
}

impl Gate {
    const WAIT: u64 = 1 << 32;

    fn to_bits(self) -> u64 {
        match self {
            Self::Closed => 0,
            Self::Slow(limit) => u64::from(limit),
            Self::Fast(limit) => u64::from(limit) | Self::WAIT,
        }
    }

    fn from_bits(bits: u64) -> Self {
        let limit = u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(u32::MAX);
        match (limit, bits & Self::WAIT != 0) {
            (0, _) => Self::Closed,
            (limit, false) => Self::Slow(limit),
            (limit, true) => Self::Fast(limit),
        }
    }

    /// How many may wait.
    pub(crate) const fn limit(self) -> u32 {
        match self {
            Self::Closed => 0,
            Self::Slow(limit) | Self::Fast(limit) => limit,
        }
    }
}

/// What all lanes share.
#[derive(Debug)]
pub(crate) struct Totals {
    budget: Budget,
    bytes: AtomicUsize,
    places: AtomicUsize,
    /// How often bytes were given back.
    given_back: AtomicU64,
    /// Somebody was refused for want of bytes.
    short: AtomicBool,
    freed: Notify,
}

impl Totals {
    /// Nothing is held; at most so much may be.
    pub(crate) fn new(budget: Budget) -> Self {
        Self {
            budget,
            bytes: AtomicUsize::new(0),
            places: AtomicUsize::new(0),
            given_back: AtomicU64::new(0),
            short: AtomicBool::new(false),
            freed: Notify::new(),
        }
    }

    /// How many places are taken.
    pub(crate) fn admitted(&self) -> usize {
        self.places.load(SeqCst)
    }

    /// How many bytes are held.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.load(SeqCst)
    }

    fn take(&self, room: &Room, bytes: usize) -> bool {
        let given_back = self.given_back.load(SeqCst);
        let taken = self.budget.with(self.bytes.fetch_add(bytes, SeqCst));
        if !taken.allows(room.bytes.fetch_add(bytes, SeqCst), bytes) {
            room.bytes.fetch_sub(bytes, SeqCst);
            self.bytes.fetch_sub(bytes, SeqCst);
            room.short_since.store(given_back, SeqCst);
            self.short.store(true, SeqCst);
            return false;
        }
        self.places.fetch_add(1, SeqCst);
        true
    }

    fn give_back(&self, room: &Room, bytes: usize) {
        room.bytes.fetch_sub(bytes, SeqCst);
        self.bytes.fetch_sub(bytes, SeqCst);
        self.places.fetch_sub(1, SeqCst);
        self.given_back.fetch_add(1, SeqCst);
        if self.short.swap(false, SeqCst) {
            self.freed.notify_waiters();
        }
    }
}

/// One lane's room.
#[derive(Debug)]
pub(crate) struct Room {
    gate: AtomicU64,
    /// Places taken.
    admitted: AtomicU32,
    /// Of these, how many have begun.
    begun: AtomicU32,
    /// Bytes taken.
    bytes: AtomicUsize,
    /// How often bytes had been given back when the lane was last refused some.
    short_since: AtomicU64,
    /// Somebody gave up waiting, and nothing has moved since.
    stuck: AtomicBool,
    freed: Notify,
    /// When an attempt last began in this lane, handed over or not, in milliseconds.
    started_at: AtomicI64,
    /// The endpoint's failures hold the lane back.
    failing: AtomicBool,
}

impl Room {
    /// An empty room with so many places.
    pub(crate) fn new(places: u32) -> Self {
        Self {
            gate: AtomicU64::new(Gate::Fast(places).to_bits()),
            admitted: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            bytes: AtomicUsize::new(0),
            short_since: AtomicU64::new(u64::MAX),
            stuck: AtomicBool::new(false),
            freed: Notify::new(),
            started_at: AtomicI64::new(i64::MIN),
            failing: AtomicBool::new(false),
        }
    }

    /// An attempt begins in the lane.
    pub(crate) fn note_start(&self, now: Timestamp) {
        self.started_at.store(now.as_millis(), SeqCst);
    }

    /// Whether the endpoint's failures hold the lane back from now on.
    pub(crate) fn set_failing(&self, failing: bool) {
        self.failing.store(failing, SeqCst);
    }

    /// When an attempt last began in the lane, if ever; `None` while failures hold it back.
    pub(crate) fn moved_at(&self) -> Option<Timestamp> {
        (!self.failing.load(SeqCst)).then(|| Timestamp::from_millis(self.started_at.load(SeqCst)))
    }

    /// What is answered from now on.
    pub(crate) fn set(&self, gate: Gate) {
        let before = self.gate.swap(gate.to_bits(), SeqCst);
        if before != gate.to_bits() {
            self.freed.notify_waiters();
        }
    }

    /// Wakes everybody who waits, because nothing will come.
    pub(crate) fn tell_all(&self) {
        self.freed.notify_waiters();
    }

    /// Answers an offer.
    pub(crate) fn admit(self: Arc<Self>, totals: &Arc<Totals>, bytes: usize) -> Offer {
        let gate = self.gate();
        let full = match gate {
            Gate::Closed => return Offer::Declined,
            Gate::Fast(_) if !self.stuck.load(SeqCst) => Offer::Full,
            Gate::Slow(_) | Gate::Fast(_) => Offer::Declined,
        };
        if bytes > totals.budget.max() {
            return Offer::Declined;
        }
        self.admitted.fetch_add(1, SeqCst);
        if self.waiting() > gate.limit() || !totals.take(&self, bytes) {
            self.admitted.fetch_sub(1, SeqCst);
            return full;
        }
        Offer::Room(Permit::new(Place { room: self, totals: Arc::clone(totals), bytes }))
    }

    /// Returns when there may be room, or there will be none. Whoever gives up waiting leaves a
    /// note, so that nobody else waits before the lane has moved.
    pub(crate) async fn wait(&self, totals: &Totals, is_open: impl Fn() -> bool) {
        let mut note = GaveUp(Some(self));
        loop {
            let mut freed = pin!(self.freed.notified());
            let mut bytes_freed = pin!(totals.freed.notified());
            freed.as_mut().enable();
            bytes_freed.as_mut().enable();
            let full = match self.gate() {
                Gate::Closed | Gate::Slow(_) => false,
                Gate::Fast(limit) => self.waiting() >= limit || self.is_short(totals),
            };
            if !full || !is_open() {
                break;
            }
            tokio::select! {
                biased;
                () = freed => {}
                () = bytes_freed => {}
            }
        }
        note.0 = None;
    }

    /// Notes that one of the admitted has begun: its place among those that wait is free.
    pub(crate) fn begin(self: Arc<Self>) -> Begun {
        self.begun.fetch_add(1, SeqCst);
        self.moved();
        Begun(self)
    }

    fn moved(&self) {
        self.stuck.store(false, SeqCst);
        self.freed.notify_one();
    }

    /// Whether the lane was refused bytes, and none have been given back since.
    fn is_short(&self, totals: &Totals) -> bool {
        self.short_since.load(SeqCst) == totals.given_back.load(SeqCst)
    }

    fn gate(&self) -> Gate {
        Gate::from_bits(self.gate.load(SeqCst))
    }

    fn waiting(&self) -> u32 {
        self.admitted.load(SeqCst).saturating_sub(self.begun.load(SeqCst))
    }
}

/// A place in a room, and the bytes in it; given back when dropped.
struct Place {
    room: Arc<Room>,
    totals: Arc<Totals>,
    bytes: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.room.admitted.fetch_sub(1, SeqCst);
        self.totals.give_back(&self.room, self.bytes);
        self.room.moved();
    }
}

/// An admitted delivery that has begun; dropped when it has ended.
#[derive(Debug)]
pub(crate) struct Begun(Arc<Room>);

impl Drop for Begun {
    fn drop(&mut self) {
        self.0.begun.fetch_sub(1, SeqCst);
    }
}

struct GaveUp<'a>(Option<&'a Room>);

impl Drop for GaveUp<'_> {
    fn drop(&mut self) {
        if let Some(room) = self.0 {
            room.stuck.store(true, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn room(places: u32, bytes_max: usize) -> (Arc<Room>, Arc<Totals>) {
        (Arc::new(Room::new(places)), Arc::new(Totals::new(Budget::new(bytes_max))))
    }

    fn offer(room: &Arc<Room>, totals: &Arc<Totals>, bytes: usize) -> Result<Permit, bool> {
        match Arc::clone(room).admit(totals, bytes) {
            Offer::Room(permit) => Ok(permit),
            Offer::Full => Err(true),
            Offer::Declined => Err(false),
        }
    }

    #[test]
    fn gates_survive_their_bits() {
        for gate in
            [Gate::Closed, Gate::Slow(1), Gate::Fast(1), Gate::Slow(u32::MAX), Gate::Fast(64)]
        {
            assert_eq!(Gate::from_bits(gate.to_bits()), gate);
        }
    }

    #[test]
    fn places_are_those_that_have_not_begun() {
        let (room, totals) = room(2, 1_000);
        let first = offer(&room, &totals, 1).expect("room");
        let _second = offer(&room, &totals, 1).expect("room");
        assert!(offer(&room, &totals, 1).err() == Some(true), "full, worth waiting");
        let begun = Arc::clone(&room).begin();
        let third = offer(&room, &totals, 1).expect("one of them has begun");
        assert!(offer(&room, &totals, 1).is_err());
        drop((first, begun));
        assert!(offer(&room, &totals, 1).is_err(), "its end frees no place of those that wait");
        drop(third);
        assert!(offer(&room, &totals, 1).is_ok());
        assert_eq!(totals.admitted(), 1);
    }

    #[test]
    fn bytes_are_shared_by_all_lanes() {
        let (one, totals) = room(64, 100);
        let (other, _) = room(64, 100);
        let big = offer(&one, &totals, 99).expect("room");
        assert_eq!(offer(&other, &totals, 2).err(), Some(true));
        drop(big);
        assert!(offer(&other, &totals, 100).is_ok());
        assert_eq!(offer(&other, &totals, 101).err(), Some(false), "will never fit");
    }

    #[test]
    fn a_closed_or_slow_lane_declines() {
        let (room, totals) = room(1, 100);
        room.set(Gate::Closed);
        assert_eq!(offer(&room, &totals, 1).err(), Some(false));
        room.set(Gate::Slow(1));
        let _one = offer(&room, &totals, 1).expect("room");
        assert_eq!(offer(&room, &totals, 1).err(), Some(false));
    }

    #[test]
    fn waiting_ends_when_room_came_or_cannot_come() {
        let open = || true;
        let (room, totals) = room(1, 100);
        assert!(room.wait(&totals, open).now_or_never().is_some(), "there is room");
        let place = offer(&room, &totals, 1).expect("room");
        {
            let mut wait = pin!(room.wait(&totals, open));
            assert!(wait.as_mut().now_or_never().is_none());
            drop(place);
            assert!(wait.now_or_never().is_some(), "a place came up");
        }
        let _place = offer(&room, &totals, 1).expect("room");
        {
            let mut wait = pin!(room.wait(&totals, open));
            assert!(wait.as_mut().now_or_never().is_none());
            room.set(Gate::Closed);
            assert!(wait.now_or_never().is_some(), "none will come");
        }
        room.set(Gate::Fast(1));
        assert!(room.wait(&totals, || false).now_or_never().is_some(), "stopping");
    }

    #[test]
    fn nobody_waits_twice_for_a_lane_that_does_not_move() {
        let (room, totals) = room(1, 100);
        let place = offer(&room, &totals, 1).expect("room");
        assert_eq!(offer(&room, &totals, 1).err(), Some(true));
        assert!(room.wait(&totals, || true).now_or_never().is_none(), "gives up");
        room.set(Gate::Fast(1));
        assert_eq!(offer(&room, &totals, 1).err(), Some(false), "the next one does not wait");
        drop(place);
        let _place = offer(&room, &totals, 1).expect("room");
        assert_eq!(offer(&room, &totals, 1).err(), Some(true), "it has moved");
    }

    #[test]
    fn waiting_for_bytes_ends_when_some_are_freed_elsewhere() {
        let (one, totals) = room(64, 100);
        let (other, _) = room(64, 100);
        let big = offer(&one, &totals, 100).expect("room");
        assert_eq!(offer(&other, &totals, 1).err(), Some(true));
        let mut wait = pin!(other.wait(&totals, || true));
        assert!(wait.as_mut().now_or_never().is_none());
        drop(big);
        assert!(wait.now_or_never().is_some());
    }
}
