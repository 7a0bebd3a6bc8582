//! Connections: a bounded number, reused while they are whole.
//!
//! A connection goes back only when its verb has ended; one whose verb was given up half-way is
//! dropped, and PostgreSQL rolls back what it had begun.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::JoinSet;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, Socket};

use crate::store::StoreError;

/// How long a verb waits for a lock. Only a handler's own transaction holds one for long.
const SESSION: &str = "SET lock_timeout = '5s'";

/// What moves the bytes of a connection.
type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;
type Opening = Pin<Box<dyn Future<Output = Result<(Client, Driver), StoreError>> + Send>>;

pub(super) struct Pool {
    open: Box<dyn Fn() -> Opening + Send + Sync>,
    permits: Semaphore,
    idle: Mutex<Vec<Client>>,
    /// Ends with the pool.
    drivers: Mutex<JoinSet<()>>,
}

impl Pool {
    /// A pool that has not connected yet.
    pub(super) fn new<T>(config: Config, tls: T, connections_max: usize) -> Self
    where
        T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
        T::Stream: Send,
        T::TlsConnect: Send,
        <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
    {
        let open = move || -> Opening {
            let (config, tls) = (config.clone(), tls.clone());
            Box::pin(async move {
                let (client, connection) = config.connect(tls).await?;
                let driver: Driver = Box::pin(async {
                    // How a connection ended is told to whoever uses it next.
                    let _ended = connection.await;
                });
                Ok((client, driver))
            })
        };
        Self {
            open: Box::new(open),
            permits: Semaphore::new(connections_max),
            idle: Mutex::default(),
            drivers: Mutex::default(),
        }
    }

    /// A connection, waited for while all are in use.
    pub(super) async fn take(&self) -> Result<(Client, SemaphorePermit<'_>), StoreError> {
        let permit = self.permits.acquire().await.map_err(StoreError::new)?;
        if let Some(client) = self.idle() {
            return Ok((client, permit));
        }
        let (client, driver) = (self.open)().await?;
        {
            let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
            while drivers.try_join_next().is_some() {}
            drivers.spawn(driver);
        }
        client.batch_execute(SESSION).await?;
        Ok((client, permit))
    }

    /// Gives a connection back; no transaction may be open.
    pub(super) fn give_back(&self, client: Client) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(client);
    }

    fn idle(&self) -> Option<Client> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::from_fn(|| idle.pop()).find(|client| !client.is_closed())
    }
}
