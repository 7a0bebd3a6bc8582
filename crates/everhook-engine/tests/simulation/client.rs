//! Callers of the API: they ask, try again when nobody answers, and write down what they were told.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use everhook_domain::idempotency::{Answer, Fingerprint};
use everhook_domain::key::{KeyHash, KeySpace};
use everhook_domain::tenant::TenantId;
use everhook_store::{Claim, Refusal, StoreError};

use crate::process::{Phase, Process};
use crate::profile::Call;
use crate::rng::Rng;
use crate::world::World;
use crate::{acts, decide, endpoints, publish, receive};

/// What came of asking once.
pub(crate) enum Told<T> {
    /// It was done.
    Done(T),
    /// It cannot be done.
    Refused(Refusal),
    /// Nothing was done; later it may be.
    Unavailable,
    /// The connection was lost: nobody knows.
    Lost,
}

/// Somebody who calls.
pub(crate) struct Client {
    /// Where.
    pub(crate) world: Arc<World>,
    /// Chance of its own.
    pub(crate) rng: Rng,
}

impl Client {
    /// Makes a call, and sees it through.
    pub(crate) async fn make(mut self, call: Call) {
        self.world.note(format_args!("call {call:?}"));
        match call {
            Call::Publish { number, items, key } => {
                publish::publish(&mut self, number, &items, key).await;
            }
            Call::Test { receiver } => publish::test(&mut self, receiver).await,
            Call::Act { deed, key } => acts::act(&mut self, deed, key).await,
            Call::SendAgain { receiver } => acts::send_again(&mut self, receiver).await,
            Call::Pause { receiver, for_ms } => {
                endpoints::pause(&mut self, receiver, for_ms).await;
            }
            Call::Disable { receiver, for_ms } => {
                endpoints::disable(&mut self, receiver, for_ms).await;
            }
            Call::Delete { receiver } => endpoints::delete(&mut self, receiver).await,
            Call::Update { receiver, rotate } => {
                endpoints::update(&mut self, receiver, rotate).await;
            }
            Call::Send(letter) => receive::send(&mut self, &letter).await,
            Call::Decide { decision, key } => decide::decide(&mut self, decision, key).await,
            Call::ChangeSecret { source, keep_old } => {
                receive::change_secret(&mut self, source, keep_old).await;
            }
        }
    }

    /// A process that answers, as soon as there is one.
    pub(crate) async fn process(&mut self) -> Arc<Process> {
        loop {
            match self.world.process() {
                Some(process) if process.life.phase() == Phase::Alive => return process,
                Some(_) | None => self.rest().await,
            }
        }
    }

    /// Waits before trying again.
    pub(crate) async fn rest(&mut self) {
        let ms = self.rng.pick(&[5, 200, 2_000, 10_000]);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

/// Asks a process once.
pub(crate) async fn ask<T>(
    process: &Process,
    call: impl Future<Output = Result<T, StoreError>>,
) -> Told<T> {
    let result = tokio::select! {
        biased;
        () = process.life.ended() => return Told::Lost,
        result = call => result,
    };
    match result {
        Ok(done) => Told::Done(done),
        Err(StoreError::Refused(refusal)) => Told::Refused(refusal),
        Err(StoreError::Unavailable(_) | StoreError::Failed(_)) => Told::Unavailable,
    }
}

/// The tenant of everything here.
pub(crate) fn tenant() -> TenantId {
    TenantId::default_tenant()
}

/// A claim on an idempotency key; the answer is the text that `render` makes.
pub(crate) fn claim<T: 'static>(
    key: &str,
    request: &str,
    render: impl Fn(&T) -> String + Send + Sync + 'static,
) -> Claim<T> {
    Claim {
        tenant: tenant(),
        key: KeyHash::new(KeySpace::Idempotency, &tenant(), &[b"simulation"], key.as_bytes()),
        account: KeyHash::new(KeySpace::IdempotencyAccount, &tenant(), &[], b"simulation"),
        account_name: "simulation".into(),
        subject: "POST /".into(),
        fingerprint: Fingerprint::new(b"text/plain", request.as_bytes()),
        render: Arc::new(move |value| Answer {
            status: 202,
            headers: Vec::new(),
            body: render(value).into_bytes(),
        }),
    }
}
