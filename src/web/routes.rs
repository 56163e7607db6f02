//! Registration. A route can't be there without saying who may use it: there is no other way to add one, and what was
//! not added here is refused. The access test takes its list from this table, so a new route fails until it is covered.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Router,
    http::Method,
    routing::{MethodFilter, MethodRouter},
};
use trainyard_core::model::TeamRole;
use utoipa::openapi::{
    OpenApi, RefOr,
    path::{Operation, PathItem},
};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use super::WebState;

/// Who may use a route at all. What is read is bounded further by the caller's scope, always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Anybody, signed in or not.
    Public,
    /// Whoever is signed in; reads show what their scope shows, deeds concern themselves.
    SignedIn,
    /// At least this role in the team that the subject belongs to.
    Team(TeamRole),
    /// As `Team(Member)`, and a job's own processes about their job.
    Reporter,
    Admin,
}

/// How much a route asks of the server, for the bound in front of the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Answers without the database.
    None,
    /// Waits its turn.
    Bounded,
}

/// One route, as the guard and the tests see it.
#[derive(Debug, Clone)]
pub struct Route {
    pub method: Method,
    pub path: String,
    pub access: Access,
    pub load: Load,
    /// For the API: the operation's id. Pages have none.
    pub operation: Option<String>,
    /// Media types of its bodies, both ways. Empty: none, or not bound.
    pub consumes: Vec<String>,
    pub produces: Vec<String>,
}

/// The table that the guard looks routes up in.
#[derive(Debug, Default)]
pub struct Table {
    routes: HashMap<String, Vec<Route>>,
}

impl Table {
    pub fn find(&self, path: &str, method: &Method) -> Option<&Route> {
        let method = if method == Method::HEAD { &Method::GET } else { method };
        self.routes.get(path)?.iter().find(|route| route.method == *method)
    }

    pub fn knows(&self, path: &str) -> bool {
        self.routes.contains_key(path)
    }

    /// Every route, in the order of paths.
    pub fn all(&self) -> Vec<&Route> {
        let mut all: Vec<&Route> = self.routes.values().flatten().collect();
        all.sort_by(|a, b| (&a.path, a.method.as_str()).cmp(&(&b.path, b.method.as_str())));
        all
    }

    fn add(&mut self, route: Route) {
        self.routes.entry(route.path.clone()).or_default().push(route);
    }
}

/// Routes under construction.
pub struct Routes {
    api: OpenApiRouter<WebState>,
    table: Table,
}

impl Routes {
    pub fn new(document: OpenApi) -> Self {
        Self {
            api: OpenApiRouter::with_openapi(document),
            table: Table::default(),
        }
    }

    /// Operations of the API on one path, as `routes!` gathers them. All of them have the same access.
    pub fn api(mut self, access: Access, operations: UtoipaMethodRouter<WebState>) -> Self {
        for (path, item) in &operations.1.paths {
            for (method, operation) in methods(item) {
                self.table.add(Route {
                    method,
                    path: path.clone(),
                    access,
                    load: if access == Access::Public {
                        Load::None
                    } else {
                        Load::Bounded
                    },
                    operation: operation.operation_id.clone(),
                    consumes: consumes(operation),
                    produces: produces(operation),
                });
            }
        }
        self.api = self.api.routes(operations);
        self
    }

    /// A page or a form: one method of one path, outside the API's document.
    pub fn page<H, T>(mut self, access: Access, load: Load, method: Method, path: &str, handler: H) -> Self
    where
        H: axum::handler::Handler<T, WebState>,
        T: 'static,
    {
        // Only methods that a filter knows can be registered.
        let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET);
        self.table.add(Route {
            method,
            path: path.to_owned(),
            access,
            load,
            operation: None,
            consumes: Vec::new(),
            produces: Vec::new(),
        });
        self.api = self.api.route(path, MethodRouter::new().on(filter, handler));
        self
    }

    pub fn finish(self) -> (Router<WebState>, OpenApi, Arc<Table>) {
        let (router, document) = self.api.split_for_parts();
        (router, document, Arc::new(self.table))
    }
}

fn methods(item: &PathItem) -> impl Iterator<Item = (Method, &Operation)> {
    [
        (Method::GET, &item.get),
        (Method::PUT, &item.put),
        (Method::POST, &item.post),
        (Method::DELETE, &item.delete),
        (Method::PATCH, &item.patch),
    ]
    .into_iter()
    .filter_map(|(method, operation)| operation.as_ref().map(|operation| (method, operation)))
}

fn consumes(operation: &Operation) -> Vec<String> {
    match &operation.request_body {
        Some(RefOr::T(body)) => body.content.keys().cloned().collect(),
        _ => Vec::new(),
    }
}

/// What its good answers are written in.
fn produces(operation: &Operation) -> Vec<String> {
    let mut types: Vec<String> = (operation.responses.responses.iter())
        .filter(|(status, _)| status.starts_with('2'))
        .filter_map(|(_, response)| match response {
            RefOr::T(response) => Some(response.content.keys().cloned()),
            RefOr::Ref(_) => None,
        })
        .flatten()
        .collect();
    types.sort();
    types.dedup();
    types
}
