//! HttpListener: answers HTTP requests by a script.
//!
//! All listeners of a CLU share one port. A request belongs to the listener whose `Path` it has, otherwise to the one without
//! a path. A listener handles one request at a time: its features keep the request until `SendResponse`, and a request that has
//! no response in time is answered with status 504.

use std::time::Instant;

use super::{
    CluObject, Feature, FeatureAccess, ObjectClass, ObjectContext, ObjectError, ObjectEvent, ObjectMethod, ValueKind,
};
use crate::http::{
    BodyKind, Headers, HttpExchange, HttpResponse, HttpRoute, PathTaken, RoutePath, decode_query, header_table,
    headers_of,
};
use crate::limit::{HTTP_ANSWER_TIME_MAX, HTTP_PATH_TIME};
use crate::log::{LogSeverity, count};
use crate::value::LuaValue;

pub(crate) static CLASS: ObjectClass = ObjectClass {
    number: 120,
    name: "HttpListener",
    version: 1,
    features: &[
        Feature::text(0, "Path").settable(),
        Feature::text(1, "Method"),
        Feature::new(2, "Query", ValueKind::Any, FeatureAccess::Get),
        Feature::number(3, "RequestType").choices(BodyKind::CHOICES),
        Feature::new(4, "RequestHeaders", ValueKind::Any, FeatureAccess::Get),
        Feature::new(5, "RequestBody", ValueKind::Any, FeatureAccess::Get),
        Feature::number(6, "ResponseType").choices(BodyKind::CHOICES).settable(),
        Feature::new(7, "ResponseHeaders", ValueKind::Any, FeatureAccess::GetSet),
        Feature::new(8, "ResponseBody", ValueKind::Any, FeatureAccess::GetSet),
        Feature::number(9, "StatusCode").range(100.0, 599.0).settable(),
    ],
    methods: &[ObjectMethod::new(0, "SendResponse"), ObjectMethod::new(1, "Clear")],
    events: &[ObjectEvent::new(0, "OnRequest")],
    create: |context| Box::new(HttpListener::new(context)),
};

struct HttpListener {
    /// `None` if the port cannot be used; the log has the reason.
    route: Option<HttpRoute>,
    path: String,
    /// When it is checked that another listener does not receive its requests.
    check_at: Option<Instant>,
    /// The request that waits for its response.
    current: Option<HttpExchange>,
    request: ReceivedRequest,
    response_kind: BodyKind,
    response_headers: LuaValue,
    response_body: LuaValue,
    status: u16,
}

/// The last request, until the next one or `Clear`.
#[derive(Default)]
struct ReceivedRequest {
    path: String,
    method: String,
    query: LuaValue,
    kind: BodyKind,
    headers: LuaValue,
    body: LuaValue,
}

impl HttpListener {
    fn new(context: &mut ObjectContext<'_>) -> HttpListener {
        let waker = context.waker();
        let route = context.world.network.http.route(waker);
        let route = route.map_err(|error| {
            context.log(LogSeverity::Error, &format!("the HTTP server cannot use its port: {error}"));
        });
        HttpListener {
            route: route.ok(),
            path: String::new(),
            check_at: None,
            current: None,
            request: ReceivedRequest::default(),
            response_kind: BodyKind::None,
            response_headers: LuaValue::Nil,
            response_body: LuaValue::Nil,
            status: 200,
        }
    }

    /// `path`: empty for what no other listener receives.
    fn set_route(&mut self, path: &str, context: &ObjectContext<'_>) -> Result<(), ObjectError> {
        let Some(route) = &self.route else { return Ok(()) };
        let is_any = path.is_empty();
        let set = route.set_path(if is_any { RoutePath::Any } else { RoutePath::Exact(path.to_string()) });
        set.map_err(|PathTaken| ObjectError::Failed {
            reason: format!("another HttpListener has the Path {path}, and a path has one listener"),
        })?;
        self.check_at = is_any.then(|| context.now().monotonic + HTTP_PATH_TIME);
        Ok(())
    }

    fn deadline_of(exchange: &HttpExchange) -> Instant {
        exchange.arrived + HTTP_ANSWER_TIME_MAX
    }

    /// Takes the next request if none waits for its response.
    fn receive(&mut self, context: &mut ObjectContext<'_>) {
        let now = context.now().monotonic;
        while self.current.is_none() {
            let Some(exchange) = self.route.as_ref().and_then(HttpRoute::take) else { return };
            if exchange.reply.is_closed() {
                // The client has disconnected.
                count(&context.world.log.counters.http_broken);
                continue;
            }
            if HttpListener::deadline_of(&exchange) <= now {
                self.current = Some(exchange);
                self.expire(context);
                continue;
            }
            let kind = BodyKind::from_headers(&exchange.headers);
            self.request = ReceivedRequest {
                path: exchange.path.clone(),
                method: exchange.method.clone(),
                query: decode_query(&exchange.query),
                kind,
                headers: header_table(&exchange.headers),
                body: kind.parse(&exchange.body),
            };
            self.clear_response();
            self.current = Some(exchange);
            context.fire(0);
        }
    }

    fn clear_response(&mut self) {
        self.response_kind = BodyKind::None;
        (self.response_headers, self.response_body) = (LuaValue::Nil, LuaValue::Nil);
        self.status = 200;
    }

    fn respond(&mut self, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        let mut headers = headers_of(&self.response_headers).map_err(|reason| ObjectError::Failed { reason })?;
        let body = self.response_kind.encode(&self.response_body, &mut headers);
        let exchange = self.current.take().ok_or_else(|| ObjectError::Failed {
            reason: "no request waits for a response; after the time limit it was answered with status 504".into(),
        })?;
        // The client may have disconnected.
        let sent = exchange.reply.send(HttpResponse { status: self.status, headers, body });
        if sent.is_err() {
            count(&context.world.log.counters.http_broken);
        }
        // The next request is taken in another turn, so that the handler of this one can still read its features.
        context.waker().wake();
        Ok(())
    }

    /// Answers a request that has waited too long.
    fn expire(&mut self, context: &mut ObjectContext<'_>) {
        let Some(exchange) = self.current.take() else { return };
        count(&context.world.log.counters.http_late);
        context
            .log(LogSeverity::Warning, &format!("no SendResponse in time for {} {}", exchange.method, exchange.path));
        // The client may have disconnected.
        let _ = exchange.reply.send(HttpResponse { status: 504, headers: Headers::new(), body: Vec::new() });
    }
}

impl CluObject for HttpListener {
    fn get(&self, index: u16, _context: &mut ObjectContext<'_>) -> LuaValue {
        match index {
            0 if self.path.is_empty() && !self.request.path.is_empty() => self.request.path.as_str().into(),
            0 => self.path.as_str().into(),
            1 => self.request.method.as_str().into(),
            2 => self.request.query.clone(),
            3 => self.request.kind.number().into(),
            4 => self.request.headers.clone(),
            5 => self.request.body.clone(),
            6 => self.response_kind.number().into(),
            7 => self.response_headers.clone(),
            8 => self.response_body.clone(),
            _ => f64::from(self.status).into(),
        }
    }

    fn set(&mut self, index: u16, value: LuaValue, context: &mut ObjectContext<'_>) -> Result<(), ObjectError> {
        match (index, value) {
            (0, LuaValue::Text(path)) => {
                let path = path.trim();
                let is_absolute = path.is_empty() || path.starts_with('/');
                let path = if is_absolute { path.to_string() } else { format!("/{path}") };
                self.set_route(&path, context)?;
                self.path = path;
            }
            (6, LuaValue::Number(number)) => self.response_kind = BodyKind::from_number(number),
            (7, value) => {
                headers_of(&value).map_err(|reason| ObjectError::Failed { reason })?;
                self.response_headers = value;
            }
            (8, value) => self.response_body = value,
            (_, value) => self.status = value.as_number().unwrap_or(200.0) as u16,
        }
        Ok(())
    }

    fn call(
        &mut self,
        index: u16,
        _arguments: &[LuaValue],
        context: &mut ObjectContext<'_>,
    ) -> Result<LuaValue, ObjectError> {
        if index == 0 {
            self.respond(context)?;
        } else {
            self.request = ReceivedRequest::default();
            self.clear_response();
        }
        Ok(LuaValue::Nil)
    }

    /// A listener whose path was not set receives what no other one does.
    fn init(&mut self, context: &mut ObjectContext<'_>) {
        if self.path.is_empty()
            && let Err(error) = self.set_route("", context)
        {
            context.log(LogSeverity::Error, &error.to_string());
        }
    }

    fn woken(&mut self, context: &mut ObjectContext<'_>) {
        self.receive(context);
    }

    fn deadline(&self) -> Option<Instant> {
        let expires = self.current.as_ref().map(HttpListener::deadline_of);
        [expires, self.check_at].into_iter().flatten().min()
    }

    fn tick(&mut self, context: &mut ObjectContext<'_>) {
        let now = context.now().monotonic;
        if self.check_at.is_some_and(|at| at <= now) {
            self.check_at = None;
            if self.route.as_ref().is_some_and(HttpRoute::is_shadowed) {
                let text = "receives no requests: another HttpListener has no Path either; set the Path of one of them";
                context.log(LogSeverity::Error, text);
            }
        }
        if self.current.as_ref().is_some_and(|exchange| HttpListener::deadline_of(exchange) <= now) {
            self.expire(context);
            self.receive(context);
        }
    }
}
