//! The pages as a person gets them: rendered, opened in a real browser in both themes and two widths, checked, and
//! photographed. Console errors, refusals of the page's policy and findings of axe fail the test.

#[path = "pages/browser.rs"]
mod browser;
#[path = "pages/line.rs"]
mod line;
#[path = "pages/samples.rs"]
mod samples;
#[path = "pages/site.rs"]
mod site;
mod support;
#[path = "pages/walk.rs"]
mod walk;

use std::{collections::HashMap, net::SocketAddr, path::PathBuf, sync::Arc};

use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{Html, IntoResponse, Response},
    routing::{get, post},
};
use browser::Browser;
use serde_json::Value;
use trainyard::web::{manners, pages};

type Samples = Arc<HashMap<&'static str, String>>;

async fn sample(State(samples): State<Samples>, Path(name): Path<String>) -> Response {
    match samples.get(name.as_str()) {
        Some(html) => ([(header::CONTENT_SECURITY_POLICY, manners::POLICY)], Html(html.clone())).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn serve() -> SocketAddr {
    let samples: Samples = Arc::new(samples::all().into_iter().collect());
    let router = Router::new()
        .route("/static/{file}", get(pages::assets::serve))
        .route("/sample/{name}", get(sample))
        // The page of a link presses its own button; an answer without content leaves it where it is.
        .route("/sign-in", post(|| async { StatusCode::NO_CONTENT }))
        .with_state(samples);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Where pictures go: `TRAINYARD_SCREENSHOTS`, or the target folder.
fn gallery() -> PathBuf {
    let folder = std::env::var_os("TRAINYARD_SCREENSHOTS").map_or_else(
        || PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("screenshots"),
        PathBuf::from,
    );
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn axe() -> String {
    let path = std::env::var_os("TRAINYARD_AXE").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("node_modules/axe-core/axe.min.js"),
        PathBuf::from,
    );
    std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; npm install --no-save axe-core", path.display()))
}

#[tokio::test]
async fn every_page_is_sound_in_both_themes_and_widths() {
    let address = serve().await;
    let browser = Browser::start().await;
    let axe = axe();
    let only = std::env::var("TRAINYARD_PAGES").unwrap_or_default();
    let mut faults: Vec<String> = Vec::new();
    let mut looked = 0;
    for theme in ["light", "dark"] {
        for width in [1400, 390] {
            browser.look(theme, width).await;
            for (name, _) in samples::all() {
                if !only.is_empty() && !only.split(',').any(|part| part == name) {
                    continue;
                }
                let place = format!("{name} {theme} {width}");
                browser.open(&format!("http://{address}/sample/{name}")).await;
                let ours = browser.run(include_str!("pages/checks.js")).await;
                faults.extend(
                    ours.as_array()
                        .into_iter()
                        .flatten()
                        .map(|fault| format!("{place}: {fault}")),
                );
                let whole = !name.starts_with("logs");
                browser
                    .screenshot(&gallery().join(format!("{name}-{theme}-{width}.png")), whole)
                    .await;
                faults.extend(
                    browser
                        .complaints()
                        .await
                        .into_iter()
                        .map(|said| format!("{place}: {said}")),
                );
                browser.run(&axe).await;
                let found = browser
                    .run_async(
                        "const done = arguments[arguments.length - 1];
                        axe.run(document, { resultTypes: ['violations'] }).then((result) => done(result.violations.flatMap(
                            (rule) => rule.nodes.slice(0, 3).map((node) => `${rule.id}: ${node.html.slice(0, 200)} ${(node.any[0] ?? {}).message ?? ''}`))),
                            (error) => done([String(error)]));",
                    )
                    .await;
                faults.extend(
                    found
                        .as_array()
                        .into_iter()
                        .flatten()
                        .map(|fault| format!("{place}: axe {fault}")),
                );
                looked += 1;
            }
        }
    }
    browser.quit().await;
    println!("{looked} views looked at, pictures in {}", gallery().display());
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[tokio::test]
async fn nothing_scrolls_sideways_between_a_telephone_and_a_desk() {
    let address = serve().await;
    let browser = Browser::start().await;
    let mut faults: Vec<String> = Vec::new();
    for width in [768, 1024] {
        browser.look("light", width).await;
        for (name, _) in samples::all() {
            browser.open(&format!("http://{address}/sample/{name}")).await;
            let found = browser.run(include_str!("pages/checks.js")).await;
            let found = found.as_array().into_iter().flatten().filter_map(Value::as_str);
            faults.extend(
                found
                    .filter(|fault| fault.starts_with("scrolls sideways"))
                    .map(|fault| format!("{name} {width}: {fault}")),
            );
        }
    }
    browser.quit().await;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn moments_are_told_in_the_readers_own_zone() {
    let address = serve().await;
    let browser = Browser::start().await;
    browser.look("light", 1400).await;
    let zone = |name: &str| serde_json::json!({ "timezoneId": name });
    browser.cdp("Emulation.setTimezoneOverride", zone("Asia/Kolkata")).await;
    browser.open(&format!("http://{address}/sample/job-running")).await;
    let exact = "const time = document.querySelector('.state time.exact'); return [time.textContent, time.title]";
    // The sample's now is 2026-11-30 16:00:00 UTC, and the job runs for 31 minutes.
    let since = browser.run(exact).await;
    assert_eq!(
        since,
        serde_json::json!(["2026-11-30 20:59:00 GMT+5:30", "2026-11-30 15:29:00 UTC"])
    );
    let hovered = "const time = document.querySelector('#events time');
         time.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
         return time.title";
    let title = browser.run(hovered).await;
    let title = title.as_str().unwrap_or_default();
    assert!(
        title.contains("GMT+5:30 (2026-11-30 ") && title.ends_with(" UTC)"),
        "{title}"
    );
    // Axes too: the marks stay where they are, and are called what the reader's clock showed then.
    let axes = "const text = (svg) => [...document.querySelectorAll(`${svg} text`)].map((each) => each.textContent.trim());
         const hours = (svg) => text(svg).filter((each) => /^\\d\\d:\\d\\d( |$)/.test(each));
         return [hours('.timeline svg')[0], hours('#cpu svg')[0], text('#cpu svg').find((each) => each.startsWith('time'))]";
    assert_eq!(
        browser.run(axes).await,
        serde_json::json!(["20:30 GMT+5:30", "20:30", "time, GMT+5:30"])
    );
    browser.cdp("Emulation.setTimezoneOverride", zone("UTC")).await;
    browser.open(&format!("http://{address}/sample/job-running")).await;
    assert_eq!(
        browser.run(axes).await,
        serde_json::json!(["15:00 UTC", "15:00", "time, UTC"])
    );
    assert_eq!(
        browser.run(exact).await,
        serde_json::json!(["2026-11-30 15:29:00 UTC", ""])
    );
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    browser.quit().await;
}

#[tokio::test]
async fn lines_of_standard_error_say_so_in_a_word() {
    let address = serve().await;
    let browser = Browser::start().await;
    browser.look("light", 1400).await;
    browser.open(&format!("http://{address}/sample/logs")).await;
    let said = "const words = (row) => getComputedStyle(row.querySelector('.n'), '::before').content;
         return [words(document.querySelector('.l.s')).includes('err '), words(document.querySelector('.l:not(.s)')).includes('err')]";
    assert_eq!(browser.run(said).await, serde_json::json!([true, false]));
    browser.quit().await;
}

#[tokio::test]
async fn what_a_rank_printed_last_is_in_sight() {
    let address = serve().await;
    let browser = Browser::start().await;
    browser.look("light", 1400).await;
    browser.open(&format!("http://{address}/sample/job-failed")).await;
    // Longer than its box, as a real traceback is, and in a rank that was closed until now.
    let seen = "return [...document.querySelectorAll('#post-mortem details')].map((details) => {
             details.open = true;
             const out = details.querySelector('pre.out');
             if (!out) return true;
             out.firstElementChild.textContent = 'line\\n'.repeat(200);
             const [box, lines] = [out, out.firstElementChild].map((each) => each.getBoundingClientRect());
             return lines.height > box.height && lines.bottom <= box.bottom;
         })";
    let seen = browser.run(seen).await;
    let all = seen.as_array().unwrap();
    assert!(all.len() > 1 && all.iter().all(|each| each == true), "{seen}");
    browser.quit().await;
}

#[test]
fn five_thousand_nodes_fit_into_300_kb() {
    use askama::Template;
    let html = samples::nodes(5_000).render().unwrap();
    assert_eq!(html.matches("<a href=/n/").count(), 5_000);
    assert!(html.len() < 300_000, "{} bytes", html.len());
}

#[tokio::test]
async fn keys_and_the_theme_switch_work() {
    let address = serve().await;
    let browser = Browser::start().await;
    browser.look("light", 1400).await;
    browser.open(&format!("http://{address}/sample/jobs")).await;
    browser.press("jj").await;
    assert_eq!(
        browser.run("return document.activeElement.textContent").await,
        "eval-harness"
    );
    browser.press("k").await;
    assert_eq!(
        browser.run("return document.activeElement.textContent").await,
        "llama-8b-sft"
    );
    browser.press("/").await;
    assert_eq!(browser.run("return document.activeElement.id").await, "find");
    browser.press("?j").await;
    assert_eq!(
        browser.run("return document.getElementById('find').value").await,
        "?j",
        "keys are text where one types"
    );
    browser.press("\u{e00c}").await;
    browser.press("?").await;
    assert_eq!(browser.run("return document.getElementById('keys').open").await, true);
    browser.press("\u{e00c}").await;
    let ground = "return getComputedStyle(document.documentElement).backgroundColor";
    let light = browser.run(ground).await;
    browser
        .run("document.getElementById('theme').click(); document.getElementById('theme').click()")
        .await;
    assert_ne!(browser.run(ground).await, light);
    browser.open(&format!("http://{address}/sample/node")).await;
    assert_ne!(browser.run(ground).await, light, "the choice holds on the next page");
    assert_eq!(browser.complaints().await, Vec::<String>::new());
    assert_eq!(browser.run("return window.broken ?? null").await, Value::Null);
    browser.quit().await;
}
