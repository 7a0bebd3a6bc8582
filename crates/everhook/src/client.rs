//! A small HTTP/1.1 client for the API of a running server: one connection a request, one deadline
//! over all of it, bounded answers. Not for endpoints: their requests go through the engine.

mod connection;
mod server_url;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;
use tokio::time;

use crate::cli::ServerArgs;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
pub(crate) use server_url::ServerUrl;

/// How long a request may take, from name resolution to the end of the answer.
const DEADLINE: Duration = Duration::from_secs(30);
/// The largest answer that is read: any body that a source takes.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// How long a request waits before it is sent again; one more than these are sent.
const RESEND_AFTER: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(3)];
/// The longest wait that a server's `Retry-After` can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(10);

const SERVER_VARIABLE: &str = "EVERHOOK_SERVER";
const TOKEN_VARIABLE: &str = "EVERHOOK_TOKEN";
const SERVER_DEFAULT: &str = "http://127.0.0.1:8080";

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("Everhook-CLI/", env!("CARGO_PKG_VERSION")));

/// Talks to one server with one token.
#[derive(Debug)]
pub(crate) struct Client {
    server: ServerUrl,
    authorization: HeaderValue,
}

/// A request without a place to go.
#[derive(Debug)]
pub(crate) struct Call {
    method: Method,
    path: String,
    body: Bytes,
    idempotency_key: Option<HeaderValue>,
}

impl Call {
    /// Reads something.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self { method: Method::GET, path: path.into(), body: Bytes::new(), idempotency_key: None }
    }

    /// Does something, with a JSON body that may be empty.
    pub(crate) fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        let (path, body) = (path.into(), body.into());
        Self { method: Method::POST, path, body, idempotency_key: None }
    }

    /// Ends or removes something.
    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self { method: Method::DELETE, ..Self::get(path) }
    }

    /// The same, to be done once however often it is sent.
    ///
    /// # Errors
    /// The key cannot stand in a header.
    pub(crate) fn once(mut self, key: &str) -> Result<Self, Failure> {
        let value = HeaderValue::from_str(key).map_err(|_| {
            Failure::usage("the Idempotency-Key may only hold visible ASCII characters")
        })?;
        self.idempotency_key = Some(value);
        Ok(self)
    }
}

/// What a server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The status code.
    pub(crate) status: StatusCode,
    /// The whole body.
    pub(crate) body: Bytes,
    retry_after: Option<Duration>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoAnswer {
    /// Nothing was sent.
    #[error("{0}")]
    Unreachable(String),
    /// It was sent; whether it was done is not known.
    #[error("{0}")]
    Lost(String),
}

impl From<NoAnswer> for Failure {
    fn from(error: NoAnswer) -> Self {
        Self::new(Exit::Unreachable, error)
    }
}

impl Client {
    /// A client for the server and the token that were given, or that the environment names.
    ///
    /// # Errors
    /// There is no token, or one of them cannot be used.
    pub(crate) fn find(typed: &ServerArgs, environment: &Environment) -> Result<Self, Failure> {
        let server = server(typed.server.as_deref(), environment)?;
        let token = typed.token.as_deref().or(environment.get(TOKEN_VARIABLE)?);
        let token = token.ok_or_else(|| {
            Failure::usage(format!(
                "no token: set {TOKEN_VARIABLE} to the token that the server printed at its first \
                 start, or to its EVERHOOK_ADMIN_TOKEN"
            ))
        })?;
        Self::new(server, token)
    }

    /// A client with this token.
    ///
    /// # Errors
    /// The token cannot stand in a header; it is not repeated.
    pub(crate) fn new(server: ServerUrl, token: &str) -> Result<Self, Failure> {
        let mut authorization =
            HeaderValue::from_bytes(format!("Bearer {}", token.trim()).as_bytes())
                .map_err(|_| Failure::usage("the token has control characters in it"))?;
        authorization.set_sensitive(true);
        Ok(Self { server, authorization })
    }

    /// Sends a request once.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub(crate) async fn send(&self, call: &Call) -> Result<Answer, NoAnswer> {
        let request = self.request(call).map_err(|error| {
            NoAnswer::Unreachable(format!("the request cannot be written: {error}"))
        })?;
        ask(&self.server, request, DEADLINE).await
    }

    fn request(&self, call: &Call) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::builder()
            .method(&call.method)
            .uri(format!("{}{}", self.server.base_path(), call.path))
            .header(header::HOST, self.server.authority())
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, "application/json")
            .header(header::AUTHORIZATION, &self.authorization);
        if !call.body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        if let Some(key) = &call.idempotency_key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        request.body(Full::new(call.body.clone()))
    }

    /// Sends a request again, the same, while its answer is lost or the server is too busy. Only
    /// for calls that are done once however often they are sent.
    ///
    /// # Errors
    /// [`Exit::Unreachable`]: the server was never reached, or not a single answer arrived.
    pub(crate) async fn send_until_answered(&self, call: &Call) -> Result<Answer, Failure> {
        let mut sent = false;
        for pause in RESEND_AFTER {
            let wait = match self.send(call).await {
                Ok(answer) if !answer.is_busy() => return Ok(answer),
                Ok(answer) => answer.retry_after.unwrap_or(pause).min(RETRY_AFTER_MAX),
                Err(NoAnswer::Unreachable(why)) if !sent => {
                    return Err(Failure::new(Exit::Unreachable, why));
                }
                Err(NoAnswer::Unreachable(_) | NoAnswer::Lost(_)) => pause,
            };
            sent = true;
            time::sleep(wait).await;
        }
        self.send(call).await.map_err(|error| {
            let tries = RESEND_AFTER.len() + 1;
            Failure::new(Exit::Unreachable, format!("{error} ({tries} tries with one key)"))
        })
    }
}

/// The server that was given, or that the environment names, or the one on this machine.
///
/// # Errors
/// It cannot be used.
pub(crate) fn server(typed: Option<&str>, environment: &Environment) -> Result<ServerUrl, Failure> {
    let (from, server) = match (typed, environment.get(SERVER_VARIABLE)?) {
        (Some(server), _) => ("--server", server),
        (None, Some(server)) => (SERVER_VARIABLE, server),
        (None, None) => ("--server", SERVER_DEFAULT),
    };
    server.parse().map_err(|error| Failure::usage(format!("{from}: {error}")))
}

/// Runs what a command has to say to a server, on this thread.
///
/// # Errors
/// The operating system gives no runtime, or what the conversation ends with.
pub(crate) fn converse<T>(
    conversation: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("the runtime does not start: {error}")))?;
    runtime.block_on(conversation)
}

/// Reads something that everybody may read.
///
/// # Errors
/// [`NoAnswer`].
pub(crate) async fn read_openly(server: &ServerUrl, path: &str) -> Result<Answer, NoAnswer> {
    let request = Request::get(format!("{}{path}", server.base_path()))
        .header(header::HOST, server.authority())
        .header(header::USER_AGENT, USER_AGENT)
        .body(Full::default())
        .map_err(|error| {
            NoAnswer::Unreachable(format!("the request cannot be written: {error}"))
        })?;
    ask(server, request, DEADLINE).await
}

/// Brings bytes with these headers to a place that is no Everhook server.
///
/// # Errors
/// [`NoAnswer`].
pub(crate) async fn bring(
    to: &ServerUrl,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, NoAnswer> {
    let path = if to.base_path().is_empty() { "/" } else { to.base_path() };
    let request = Request::builder().method(Method::POST).uri(path);
    let mut request =
        request.header(header::HOST, to.authority()).body(Full::new(body)).map_err(|error| {
            NoAnswer::Unreachable(format!("the request cannot be written: {error}"))
        })?;
    request.headers_mut().extend(headers);
    Ok(ask(to, request, DEADLINE).await?.status)
}

/// Sends a request as it is, over a connection of its own, and waits for the whole answer.
///
/// # Errors
/// [`NoAnswer`].
pub(crate) async fn ask(
    server: &ServerUrl,
    request: Request<Full<Bytes>>,
    within: Duration,
) -> Result<Answer, NoAnswer> {
    let late = || format!("{server} has not answered within {} s", within.as_secs());
    let deadline = time::sleep(within);
    tokio::pin!(deadline);
    let stream = tokio::select! {
        stream = connection::open(server) => stream.map_err(NoAnswer::Unreachable)?,
        () = &mut deadline => return Err(NoAnswer::Unreachable(late())),
    };
    tokio::select! {
        answer = exchange(stream, request) => {
            let lost = |error| format!("the answer of {server} was lost: {error}");
            answer.map_err(|error| NoAnswer::Lost(lost(error)))
        }
        () = &mut deadline => Err(NoAnswer::Lost(late())),
    }
}

async fn exchange(
    stream: connection::Connection,
    request: Request<Full<Bytes>>,
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Ends with this function, which owns it.
    let mut driver = JoinSet::new();
    driver.spawn(connection);
    let response = sender.send_request(request).await?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await?.to_bytes();
    let retry_after = head.headers.get(header::RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    Ok(Answer { status: head.status, body, retry_after: retry_after.map(Duration::from_secs) })
}

impl Answer {
    /// The body as it is, if the server did what it was asked.
    ///
    /// # Errors
    /// As [`Self::accepted`].
    pub(crate) fn bytes(self) -> Result<Bytes, Failure> {
        if self.status.is_success() {
            return Ok(self.body);
        }
        let json = serde_json::from_slice(&self.body).ok();
        Err(Failure::new(Exit::Refused, self.problem(json.as_ref())))
    }

    /// The body as JSON, whatever the status.
    pub(crate) fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Whether the server asks for another try.
    fn is_busy(&self) -> bool {
        matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }

    /// The body as JSON, if the server did what it was asked.
    ///
    /// # Errors
    /// [`Exit::Refused`] with the server's own words.
    pub(crate) fn accepted(&self) -> Result<serde_json::Value, Failure> {
        let json = serde_json::from_slice(&self.body);
        match (self.status.is_success(), json) {
            (true, Ok(json)) => Ok(json),
            (true, Err(error)) => Err(Failure::new(
                Exit::Refused,
                format!("the server's answer is not JSON ({error}): is it an Everhook server?"),
            )),
            (false, json) => Err(Failure::new(Exit::Refused, self.problem(json.ok().as_ref()))),
        }
    }

    /// What a problem (RFC 9457) says, for a person.
    fn problem(&self, json: Option<&serde_json::Value>) -> String {
        let text = |name: &str| json.and_then(|json| json.get(name)?.as_str());
        let mut problem = format!("the server answered {}", self.status.as_u16());
        for part in [text("title"), text("detail")].into_iter().flatten() {
            problem.push_str(": ");
            problem.push_str(part);
        }
        let errors = json.and_then(|json| json.get("errors")?.as_array());
        for error in errors.into_iter().flatten() {
            let part = |name: &str| error.get(name).and_then(|part| part.as_str()).unwrap_or("");
            problem.push_str(&format!("\n  {}: {}", part("pointer"), part("detail")));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            problem.push_str("\n  set EVERHOOK_TOKEN to a token of this server");
        }
        problem
    }
}

#[cfg(test)]
mod tests;
