//! The API's OpenAPI document: what is said once for all operations. Refusals are described here from what an operation
//! takes and who may use it, so that no operation can forget one.

use utoipa::{
    OpenApi, PartialSchema, ToSchema,
    openapi::{
        Content, OpenApi as Document, Ref, RefOr, Response, ResponseBuilder,
        path::{Operation, PathItem},
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use super::super::{Access, Table, error::Problem};
use super::nodes::list::NodePhase;
use crate::actions::FieldFault;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Trainyard",
        description = "An open control plane for training clusters and jobs. A request writes down a wish; workers make \
            the world match. Problems are `application/problem+json` (RFC 9457) with a stable `code`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    // Words that only parameters use.
    components(schemas(NodePhase)),
    tags(
        (name = "jobs", description = "What people ask to train"),
        (name = "attempts", description = "Submissions of a job, with replicas and incarnations"),
        (name = "logs", description = "What replicas print"),
        (name = "metrics", description = "Series of numbers, checkpoints and usage"),
        (name = "clusters", description = "Where jobs run"),
        (name = "nodes", description = "Machines of clusters"),
        (name = "people", description = "Users, teams and tokens"),
        (name = "secrets", description = "Values that documents refer to and nobody reads back"),
        (name = "installation", description = "This installation itself")
    )
)]
struct Begin;

pub fn begin() -> Document {
    Begin::openapi()
}

const PROBLEM: &str = "application/problem+json";

/// Completes the document: security, refusals, and the schemas that they need.
pub fn polish(mut document: Document, table: &Table) -> Document {
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("ty_...")
        .build();
    components.add_security_scheme("token", SecurityScheme::Http(bearer));
    let cookie = ApiKeyValue::with_description("trainyard", "A browser's session; unsafe requests carry X-CSRF-Token");
    components.add_security_scheme("session", SecurityScheme::ApiKey(ApiKey::Cookie(cookie)));
    components
        .schemas
        .insert(Problem::name().into_owned(), Problem::schema());
    components
        .schemas
        .insert(FieldFault::name().into_owned(), FieldFault::schema());

    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations(item) {
            let Some(access) = table.find(path, &method).map(|route| route.access) else {
                continue;
            };
            operation.security = Some(match access {
                Access::Public => Vec::new(),
                _ => vec![requirement("token"), requirement("session")],
            });
            refusals(operation, access, path);
        }
    }
    document
}

fn requirement(name: &str) -> SecurityRequirement {
    SecurityRequirement::new(name, Vec::<String>::new())
}

fn operations(item: &mut PathItem) -> Vec<(axum::http::Method, &mut Operation)> {
    use axum::http::Method;
    [
        (Method::GET, item.get.as_mut()),
        (Method::PUT, item.put.as_mut()),
        (Method::POST, item.post.as_mut()),
        (Method::DELETE, item.delete.as_mut()),
        (Method::PATCH, item.patch.as_mut()),
    ]
    .into_iter()
    .filter_map(|(method, operation)| operation.map(|operation| (method, operation)))
    .collect()
}

fn refusals(operation: &mut Operation, access: Access, path: &str) {
    let mut codes = vec![
        (406, "None of the accepted media types is offered"),
        (500, "A fault of ours"),
    ];
    let has_parameters = operation
        .parameters
        .as_ref()
        .is_some_and(|parameters| !parameters.is_empty());
    if has_parameters || operation.request_body.is_some() {
        codes.push((400, "A parameter is wrong"));
    }
    if path.contains('{') || has_parameters {
        codes.push((404, "Not there, or not to be seen by the caller"));
    }
    if access != Access::Public {
        codes.push((401, "Nobody is signed in"));
        codes.push((403, "The caller may not do this"));
        codes.push((429, "Too many requests; see Retry-After"));
        codes.push((503, "The database is away, or too much waits; see Retry-After"));
    }
    if operation.request_body.is_some() {
        codes.push((413, "The body is too large"));
        codes.push((415, "The body's media type is not taken"));
        codes.push((422, "The body has faults; see errors"));
    }
    for (status, description) in codes {
        operation
            .responses
            .responses
            .entry(status.to_string())
            .or_insert_with(|| RefOr::T(problem(description)));
    }
}

fn problem(description: &str) -> Response {
    let schema = RefOr::Ref(Ref::from_schema_name(Problem::name()));
    ResponseBuilder::new()
        .description(description)
        .content(PROBLEM, Content::new(Some(schema)))
        .build()
}
