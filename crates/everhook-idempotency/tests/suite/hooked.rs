//! A store in front of a store, which asks before and after each verb.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_domain::idempotency::claim::{ClaimRecord, Token};
use everhook_domain::key::KeyHash;
use everhook_idempotency::store::{
    Finished, Lapsed, Look, Quota, Store, StoreError, Taken, Taking, Terms,
};

/// Says whether the verb goes on, given a step as `take:before`.
pub(crate) type Hook = Arc<
    dyn Fn(&'static str) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>
        + Send
        + Sync,
>;

pub(crate) struct Hooked {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) hook: Hook,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

/// A hook that fails at a step while `fails` says so.
pub(crate) fn failing(fails: impl Fn(&'static str) -> bool + Send + Sync + 'static) -> Hook {
    Arc::new(move |step| {
        let failed = fails(step);
        Box::pin(async move {
            if failed { Err(StoreError(format!("planted at {step}"))) } else { Ok(()) }
        })
    })
}

#[async_trait]
impl Store for Hooked {
    async fn look(&self, key: KeyHash) -> Result<Look, StoreError> {
        (self.hook)("look:before").await?;
        let look = self.inner.look(key).await?;
        (self.hook)("look:after").await?;
        Ok(look)
    }

    async fn take(
        &self,
        taking: &Taking,
        seen: Option<&ClaimRecord>,
        terms: Terms,
        quota: Quota,
    ) -> Result<Taken, StoreError> {
        (self.hook)("take:before").await?;
        let taken = self.inner.take(taking, seen, terms, quota).await?;
        (self.hook)("take:after").await?;
        Ok(taken)
    }

    async fn renew(
        &self,
        key: KeyHash,
        token: Token,
        terms: Terms,
        checkpoint: Option<&[u8]>,
    ) -> Result<bool, StoreError> {
        (self.hook)("renew:before").await?;
        let own = self.inner.renew(key, token, terms, checkpoint).await?;
        (self.hook)("renew:after").await?;
        Ok(own)
    }

    async fn finish(
        &self,
        key: KeyHash,
        token: Token,
        remembered: &[u8],
        ttl: Duration,
    ) -> Result<Finished, StoreError> {
        (self.hook)("finish:before").await?;
        let finished = self.inner.finish(key, token, remembered, ttl).await?;
        (self.hook)("finish:after").await?;
        Ok(finished)
    }

    async fn release(&self, key: KeyHash, token: Token) -> Result<bool, StoreError> {
        (self.hook)("release:before").await?;
        let released = self.inner.release(key, token).await?;
        (self.hook)("release:after").await?;
        Ok(released)
    }

    async fn lapsed(&self, limit: u32) -> Result<Vec<Lapsed>, StoreError> {
        self.inner.lapsed(limit).await
    }

    async fn clean(&self, limit: u32) -> Result<u32, StoreError> {
        self.inner.clean(limit).await
    }
}
