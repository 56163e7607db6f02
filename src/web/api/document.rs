//! The API's OpenAPI document: what is said once for all operations. Refusals are described here from what an operation
//! takes and who may use it, so that no operation can forget one.

use utoipa::{
    OpenApi, PartialSchema, ToSchema,
    openapi::{
        Components, Content, KnownFormat, ObjectBuilder, OpenApi as Document, Ref, RefOr, Response, ResponseBuilder,
        Schema, SchemaFormat, Type,
        path::{Operation, PathItem},
        schema::SchemaType,
        security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme},
    },
};

use super::{
    super::{Access, Table, error::Problem, sse},
    nodes::list::NodePhase,
};
use crate::actions::FieldFault;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Trainyard",
        description = "An open control plane for training clusters and jobs. A request writes down a wish; workers make \
            the world match. Problems are `application/problem+json` (RFC 9457) with a stable `code`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
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
    // What only a parameter names is not collected from it.
    components
        .schemas
        .insert(NodePhase::name().into_owned(), NodePhase::schema());
    name_alternatives(components);

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
            describe(operation);
            name_bytes(operation);
        }
    }
    document
}

/// The objects inside of alternatives (`Code` is one of `inline`, `upload`, `git`) become schemas of their own: generators
/// make types of schemas with names, and stumble over two without.
fn name_alternatives(components: &mut Components) {
    let mut named = Vec::new();
    for (name, schema) in &mut components.schemas {
        let RefOr::T(Schema::OneOf(alternatives)) = schema else {
            continue;
        };
        let objects = alternatives.items.iter_mut().filter_map(|item| match item {
            RefOr::T(Schema::Object(object)) => Some(object),
            _ => None,
        });
        for (field, inner) in objects.flat_map(|object| &mut object.properties) {
            if matches!(inner, RefOr::T(Schema::Object(inner)) if inner.schema_type == SchemaType::Type(Type::Object)) {
                let (first, rest) = field.split_at(1);
                let own = format!("{name}{}{rest}", first.to_ascii_uppercase());
                let reference = RefOr::Ref(Ref::from_schema_name(&own));
                named.push((own, std::mem::replace(inner, reference)));
            }
        }
    }
    components.schemas.extend(named);
}

/// A body of bytes says so; without a schema generators leave the operation out.
fn name_bytes(operation: &mut Operation) {
    let Some(RefOr::T(body)) = &mut operation.request_body else {
        return;
    };
    for content in body.content.values_mut() {
        if let RefOr::T(content) = content
            && content.schema.is_none()
        {
            let bytes = ObjectBuilder::new()
                .schema_type(Type::String)
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)));
            content.schema = Some(RefOr::T(bytes.into()));
        }
    }
}

/// OpenAPI 3.1 wants words for every response, and generators refuse a document without them. It has none for the
/// messages of a stream, so a stream has no schema: one of text would be taken for each message's.
fn describe(operation: &mut Operation) {
    for (status, response) in &mut operation.responses.responses {
        let RefOr::T(response) = response else {
            continue;
        };
        if response.description.is_empty() {
            response.description = match status.as_str() {
                "201" => "Made",
                "202" => "The wish is written",
                "204" => "Done",
                _ => "What was asked for",
            }
            .into();
        }
        if let Some(RefOr::T(stream)) = response.content.get_mut(sse::MEDIA_TYPE) {
            stream.schema = None;
        }
    }
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
