//! What accounts have of idempotency keys: live ones, and bytes of remembered answers.
//!
//! The writer mirrors every record here by account and expiry, claims and those of our own API
//! alike. So a count is exact, and what is over makes room at its very instant, whenever its row is
//! cleared away. The rows themselves have no index by account, which every keyed request would pay
//! for.

use std::collections::{BTreeMap, HashMap};

use everhook_domain::idempotency::claim::Quota;
use everhook_domain::key::KeyHash;
use everhook_domain::time::Timestamp;

/// Where a record stands in its account: when it ends, and its sequence.
pub(super) type Place = (Timestamp, i64);

/// The committed records of all accounts.
#[derive(Debug, Default)]
pub(super) struct Accounts(HashMap<KeyHash, Records>);

/// Records with the bytes that they remember.
#[derive(Debug, Default)]
struct Records {
    by_place: BTreeMap<Place, u64>,
    bytes: u64,
}

/// What a transaction changes.
#[derive(Debug, Default)]
pub(super) struct AccountChanges(HashMap<KeyHash, Changed>);

#[derive(Debug, Default)]
struct Changed {
    /// Of those that are committed.
    removed: Records,
    added: Records,
}

/// Whether an account may have one more key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// It may.
    Free,
    /// It may, as some of what it has is over and was not cleared away yet.
    Expired,
    /// It has as much as it may have.
    Full,
}

impl Records {
    fn add(&mut self, place: Place, bytes: u64) {
        self.remove(&place);
        self.by_place.insert(place, bytes);
        self.bytes += bytes;
    }

    fn remove(&mut self, place: &Place) -> Option<u64> {
        let bytes = self.by_place.remove(place)?;
        self.bytes -= bytes;
        Some(bytes)
    }

    fn keys(&self) -> u64 {
        u64::try_from(self.by_place.len()).unwrap_or(u64::MAX)
    }

    /// Those that are over.
    fn over(&self, now: Timestamp) -> impl Iterator<Item = (&Place, u64)> {
        self.by_place.range(..=(now, i64::MAX)).map(|(place, bytes)| (place, *bytes))
    }
}

impl Accounts {
    /// Adds a record that was read at start.
    pub(super) fn add(&mut self, account: KeyHash, place: Place, bytes: u64) {
        self.0.entry(account).or_default().add(place, bytes);
    }

    /// Takes over what a transaction has committed.
    pub(super) fn take_over(&mut self, changes: AccountChanges) {
        for (account, changed) in changes.0 {
            let records = self.0.entry(account).or_default();
            for place in changed.removed.by_place.keys() {
                records.remove(place);
            }
            for (place, bytes) in changed.added.by_place {
                records.add(place, bytes);
            }
            if records.by_place.is_empty() {
                self.0.remove(&account);
            }
        }
    }
}

impl AccountChanges {
    /// Counts a record.
    pub(super) fn add(&mut self, account: KeyHash, place: Place, bytes: u64) {
        self.0.entry(account).or_default().added.add(place, bytes);
    }

    /// Takes a record out of its account, if it is in it.
    pub(super) fn remove(&mut self, committed: &Accounts, account: KeyHash, place: Place) {
        let changed = self.0.entry(account).or_default();
        if changed.added.remove(&place).is_none()
            && let Some(bytes) = committed.0.get(&account).and_then(|has| has.by_place.get(&place))
        {
            changed.removed.add(place, *bytes);
        }
    }

    /// Whether an account may have one more key after this transaction.
    pub(super) fn room(
        &self,
        committed: &Accounts,
        account: &KeyHash,
        quota: Quota,
        now: Timestamp,
    ) -> Room {
        let (none, unchanged) = (Records::default(), Changed::default());
        let committed = committed.0.get(account).unwrap_or(&none);
        let Changed { removed, added } = self.0.get(account).unwrap_or(&unchanged);
        let mut keys = committed.keys() - removed.keys() + added.keys();
        let mut bytes = committed.bytes - removed.bytes + added.bytes;
        if keys < quota.keys && bytes < quota.bytes {
            return Room::Free;
        }
        let still = committed.over(now).filter(|(place, _)| !removed.by_place.contains_key(place));
        for (_, remembered) in still.chain(added.over(now)) {
            keys -= 1;
            bytes -= remembered;
            if keys < quota.keys && bytes < quota.bytes {
                return Room::Expired;
            }
        }
        Room::Full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: KeyHash = KeyHash([1; 16]);
    const QUOTA: Quota = Quota { keys: 3, bytes: 100 };

    fn place(at: i64, sequence: i64) -> Place {
        (Timestamp::from_millis(at), sequence)
    }

    fn check(accounts: &Accounts, changes: &AccountChanges, now: i64, expected: Room) {
        let room = changes.room(accounts, &ONE, QUOTA, Timestamp::from_millis(now));
        assert_eq!(room, expected, "at {now}: {accounts:?} {changes:?}");
    }

    #[test]
    fn keys_count_until_their_instant() {
        let (mut accounts, mut changes) = (Accounts::default(), AccountChanges::default());
        accounts.add(ONE, place(10, 1), 0);
        accounts.add(ONE, place(20, 2), 0);
        accounts.add(KeyHash([2; 16]), place(10, 3), 1_000);
        check(&accounts, &changes, 0, Room::Free);
        changes.add(ONE, place(30, 4), 0);
        check(&accounts, &changes, 9, Room::Full);
        check(&accounts, &changes, 10, Room::Expired);
        changes.remove(&accounts, ONE, place(10, 1));
        check(&accounts, &changes, 9, Room::Free);
        changes.add(ONE, place(40, 5), 0);
        check(&accounts, &changes, 10, Room::Full);
        check(&accounts, &changes, 20, Room::Expired);
        accounts.take_over(changes);
        let changes = AccountChanges::default();
        check(&accounts, &changes, 19, Room::Full);
        check(&accounts, &changes, 20, Room::Expired);
    }

    #[test]
    fn bytes_count_as_they_change() {
        let (mut accounts, mut changes) = (Accounts::default(), AccountChanges::default());
        accounts.add(ONE, place(10, 1), 0);
        changes.remove(&accounts, ONE, place(10, 1));
        changes.add(ONE, place(10, 1), 99);
        check(&accounts, &changes, 0, Room::Free);
        changes.remove(&accounts, ONE, place(10, 1));
        changes.add(ONE, place(10, 1), 100);
        check(&accounts, &changes, 0, Room::Full);
        accounts.take_over(changes);
        check(&accounts, &AccountChanges::default(), 0, Room::Full);
        let mut changes = AccountChanges::default();
        // Twice, or one that is not there: as once.
        for _ in 0..2 {
            changes.remove(&accounts, ONE, place(10, 1));
            changes.remove(&accounts, ONE, place(11, 1));
        }
        check(&accounts, &changes, 0, Room::Free);
        accounts.take_over(changes);
        assert!(accounts.0.is_empty());
    }
}
