//! A route: a path, its methods, and what each of them asks of who calls.
//!
//! A method cannot be added without its [`Door`], and a handler behind a door that needs a scope is
//! reached only by a request that was let in, with [`Admitted`](crate::app::Admitted) in it.

use std::future::{Ready, ready};
use std::sync::Arc;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use everhook_domain::access::Scope;
use futures_util::future::Either;

use crate::app::App;

/// What a method of a route asks of who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// Nothing: it has its own way to know who calls, or tells nothing.
    Open,
    /// Credentials that this scope is among, or another one that is enough.
    Needs(Scope),
}

/// Any method, in the list of doors.
pub const ANY_METHOD: &str = "*";

/// A path with its methods.
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) methods: MethodRouter<Arc<App>>,
    pub(super) doors: Vec<(&'static str, Door)>,
}

impl Route {
    /// A path without methods.
    pub(super) fn at(path: &'static str) -> Self {
        Self { path, methods: MethodRouter::new(), doors: Vec::new() }
    }

    pub(super) fn get<T: 'static>(self, door: Door, handler: impl Handler<T, Arc<App>>) -> Self {
        self.with(("GET", door), handler, MethodRouter::get)
    }

    pub(super) fn post<T: 'static>(self, door: Door, handler: impl Handler<T, Arc<App>>) -> Self {
        self.with(("POST", door), handler, MethodRouter::post)
    }

    pub(super) fn patch<T: 'static>(self, door: Door, handler: impl Handler<T, Arc<App>>) -> Self {
        self.with(("PATCH", door), handler, MethodRouter::patch)
    }

    pub(super) fn delete<T: 'static>(self, door: Door, handler: impl Handler<T, Arc<App>>) -> Self {
        self.with(("DELETE", door), handler, MethodRouter::delete)
    }

    /// The handler takes every method.
    pub(super) fn any<T: 'static>(self, door: Door, handler: impl Handler<T, Arc<App>>) -> Self {
        let fallback = |methods: MethodRouter<_>, handler| methods.fallback(handler);
        self.with((ANY_METHOD, door), handler, fallback)
    }

    fn with<T: 'static, H: Handler<T, Arc<App>>>(
        mut self,
        (method, door): (&'static str, Door),
        handler: H,
        add: impl FnOnce(MethodRouter<Arc<App>>, Guarded<H>) -> MethodRouter<Arc<App>>,
    ) -> Self {
        self.methods = add(self.methods, Guarded { door, handler });
        self.doors.push((method, door));
        self
    }
}

/// A handler behind a door.
#[derive(Clone)]
struct Guarded<H> {
    door: Door,
    handler: H,
}

impl<T: 'static, H: Handler<T, Arc<App>>> Handler<T, Arc<App>> for Guarded<H> {
    type Future = Either<Ready<Response>, H::Future>;

    fn call(self, mut request: Request, app: Arc<App>) -> Self::Future {
        if let Door::Needs(scope) = self.door
            && let Err(problem) = app.let_in(scope, &mut request)
        {
            return Either::Left(ready(problem.into_response()));
        }
        Either::Right(self.handler.call(request, app))
    }
}
