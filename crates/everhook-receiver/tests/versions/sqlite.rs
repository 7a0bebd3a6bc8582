//! Objects in a table of SQLite, in one transaction with the gate.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use everhook_receiver::version::sqlite::rusqlite::{
    Connection, OptionalExtension as _, Transaction, TransactionBehavior, params,
};
use everhook_receiver::version::sqlite::{SCHEMA, VersionGate};
use everhook_receiver::version::{Content, ObjectKey, State, Verdict, Version};

use crate::{Kind, Objects};

pub(crate) const KIND: Kind = Kind {
    name: "sqlite",
    can_fail: true,
    create: |number, tombstones, _| {
        let folder = std::env::temp_dir();
        let file = folder.join(format!("everhook-versions-{}-{number}.db", std::process::id()));
        let remove = Arc::new(Remove(file));
        [(), ()].map(|()| -> Arc<dyn Objects> { Arc::new(Sqlite::open(&remove, tombstones)) })
    },
};

/// Removes the file when the last connection is closed.
struct Remove(std::path::PathBuf);

impl Drop for Remove {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

struct Sqlite {
    gate: VersionGate,
    connection: Mutex<Connection>,
    _remove: Arc<Remove>,
}

impl Sqlite {
    fn open(remove: &Arc<Remove>, tombstones: Duration) -> Self {
        let connection = Connection::open(&remove.0).unwrap();
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        let things = "CREATE TABLE IF NOT EXISTS things
             (object BLOB PRIMARY KEY, version INTEGER, content BLOB) STRICT";
        connection.execute_batch(things).unwrap();
        let gate = VersionGate { tombstones };
        Self { gate, connection: Mutex::new(connection), _remove: Arc::clone(remove) }
    }

    fn write(&self, commit: bool, verb: impl Fn(&Transaction<'_>) -> Verdict) -> Verdict {
        let mut connection = self.connection.lock().unwrap();
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        let verdict = verb(&tx);
        if commit {
            tx.commit().unwrap();
        }
        verdict
    }
}

fn put(tx: &Transaction<'_>, object: &ObjectKey, state: &State) {
    let content = match state.content {
        Content::Of(hash) => Some(hash),
        Content::Deleted => None,
    };
    let put = "INSERT OR REPLACE INTO things VALUES (?1, ?2, ?3)";
    tx.execute(put, params![object.0, state.version.0, content]).unwrap();
}

#[async_trait]
impl Objects for Sqlite {
    async fn apply(&self, object: &ObjectKey, state: &State, settles: Option<&State>) -> Verdict {
        self.write(true, |tx| {
            let verdict = match settles {
                None => self.gate.advance_in(tx, object, state),
                Some(held) => self.gate.settle_in(tx, object, held, state),
            };
            let verdict = verdict.unwrap();
            if verdict == Verdict::Fresh {
                put(tx, object, state);
            }
            verdict
        })
    }

    async fn fail(&self, object: &ObjectKey, state: &State) {
        let verdict = self.write(false, |tx| self.gate.advance_in(tx, object, state).unwrap());
        assert_eq!(verdict, Verdict::Fresh);
    }

    async fn written(&self, object: &ObjectKey) -> Option<State> {
        let connection = self.connection.lock().unwrap();
        let find = "SELECT version, content FROM things WHERE object = ?1";
        let found = connection.query_row(find, [object.0], |row| {
            let content: Option<[u8; 32]> = row.get(1)?;
            let content = content.map_or(Content::Deleted, Content::Of);
            Ok(State { version: Version(row.get(0)?), content })
        });
        found.optional().unwrap()
    }

    async fn forgotten(&self, _: &ObjectKey) {
        assert_eq!(self.gate.clean(&self.connection.lock().unwrap(), 10).unwrap(), 1);
    }
}
