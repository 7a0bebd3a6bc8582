//! The deliveries of one piece of work: fixed when it is begun, and stored compactly.

use rusqlite::{Connection, OptionalExtension, params};

use super::super::row::{bad, signed, unsigned};
use crate::bulk::CHUNK_MEMBERS;
use crate::code::UnknownCode;

/// Rows that are removed in one step.
const CLEAR_ROWS: i64 = 100;

/// A row's worth of keys, as it is stored.
pub(super) struct Chunk {
    last: i64,
    keys: Vec<u8>,
}

/// Keys, which must rise, as they are stored.
pub(super) fn chunks(keys: &[i64]) -> Vec<Chunk> {
    let chunk = |keys: &[i64]| keys.last().map(|last| Chunk { last: *last, keys: pack(keys) });
    keys.chunks(CHUNK_MEMBERS).filter_map(chunk).collect()
}

impl Chunk {
    /// Its size in bytes.
    pub(super) fn weight(&self) -> usize {
        self.keys.len()
    }
}

/// Stores what [`chunks`] made.
pub(super) fn insert(connection: &Connection, bulk: i64, chunks: &[Chunk]) -> rusqlite::Result<()> {
    let mut statement = connection
        .prepare_cached("INSERT INTO bulk_members (bulk, last, keys) VALUES (?1, ?2, ?3)")?;
    for chunk in chunks {
        statement.execute(params![bulk, chunk.last, chunk.keys])?;
    }
    Ok(())
}

/// The next keys after this one; empty if none is left.
pub(super) fn after(connection: &Connection, bulk: i64, key: i64) -> rusqlite::Result<Vec<i64>> {
    let chunk: Option<Vec<u8>> = connection
        .prepare_cached(
            "SELECT keys FROM bulk_members WHERE bulk = ?1 AND last > ?2 ORDER BY last LIMIT 1",
        )?
        .query_row([bulk, key], |row| row.get(0))
        .optional()?;
    let mut keys = unpack(&chunk.unwrap_or_default()).ok_or_else(|| unreadable(bulk))?;
    keys.retain(|member| *member > key);
    Ok(keys)
}

/// Every key.
pub(super) fn all(connection: &Connection, bulk: i64) -> rusqlite::Result<Vec<i64>> {
    let mut statement =
        connection.prepare_cached("SELECT keys FROM bulk_members WHERE bulk = ?1 ORDER BY last")?;
    let mut rows = statement.query([bulk])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.extend(unpack(row.get_ref(0)?.as_blob()?).ok_or_else(|| unreadable(bulk))?);
    }
    Ok(keys)
}

/// Removes some; false when none was left.
pub(super) fn clear(connection: &Connection, bulk: i64) -> rusqlite::Result<bool> {
    let cleared = connection
        .prepare_cached(
            "DELETE FROM bulk_members WHERE seq IN \
             (SELECT seq FROM bulk_members WHERE bulk = ?1 LIMIT ?2)",
        )?
        .execute([bulk, CLEAR_ROWS])?;
    Ok(cleared > 0)
}

fn unreadable(bulk: i64) -> rusqlite::Error {
    bad(UnknownCode("members of bulk work", bulk))
}

/// Each key as its distance from the one before, seven bits a byte, least significant first.
fn pack(keys: &[i64]) -> Vec<u8> {
    let (mut packed, mut before) = (Vec::with_capacity(keys.len() * 3), 0);
    for key in keys {
        let mut rest = unsigned(key - before);
        while rest > 0x7f {
            packed.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        packed.push(rest as u8);
        before = *key;
    }
    packed
}

/// The keys that [`pack`] wrote; `None` for other bytes.
fn unpack(packed: &[u8]) -> Option<Vec<i64>> {
    let (mut keys, mut before, mut distance, mut shift) = (Vec::new(), 0_i64, 0_u64, 0);
    for byte in packed {
        distance |= u64::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            before = before.checked_add(signed(distance))?;
            keys.push(before);
            (distance, shift) = (0, 0);
        }
    }
    (shift == 0).then_some(keys)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_take_three_bytes() {
        let keys: Vec<i64> = (1..=500).map(|event| event << 16 | 1).collect();
        assert!(pack(&keys).len() <= 1_510, "{}", pack(&keys).len());
        assert_eq!(unpack(&pack(&keys)), Some(keys));
        assert_eq!(unpack(&[0x80]), None);
        assert_eq!(unpack(&[0xff; 12]), None);
    }

    proptest! {
        #[test]
        fn keys_are_read_back(keys in prop::collection::btree_set(0..i64::MAX, 0..50)) {
            let keys: Vec<i64> = keys.into_iter().collect();
            prop_assert_eq!(unpack(&pack(&keys)), Some(keys));
        }
    }
}
