//! The pages: one file each, with its handler, its view and its tests. A view is pure data that a template shows; every
//! page is whole without JavaScript, and what changes is patched in place where JavaScript runs.
//!
//! Deliberately absent: SQL (in db), decisions (in core's plan), and any markup made from text by hand: templates
//! escape, and the two makers of drawings escape every label.

pub mod assets;
pub mod cluster;
pub mod clusters;
pub mod confirm;
pub mod errors;
pub mod job;
pub mod jobs;
pub mod logs;
pub mod new_job;
pub mod node;
pub mod nodes;
pub mod numbers;
pub mod search;
pub mod settings;
pub mod sign_in;
pub mod terminal;
pub mod timeline;
pub mod told;
pub mod view;

pub use assets::url;

/// The policy that every page is sent with: no script, no style and no connection but our own, nothing inline, in
/// nobody's frame.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
