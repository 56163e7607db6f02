//! What a person does on the pages of a running server, with real jobs: the pages follow by themselves, and the console
//! stays silent.

use serde_json::{Value, json};

use crate::{browser::Browser, line::Line, site::Site, support::postgres};

const STEPS: usize = 40;

fn document(name: &str, script: &str) -> String {
    json!({
        "apiVersion": "trainyard.dev/v1",
        "kind": "Job",
        "name": name,
        "roles": [{
            "name": "main",
            "command": ["python3", "-u", "main.py"],
            "resources": { "cpu": "100m", "memory": "64Mi" }
        }],
        "code": { "inline": { "main.py": script } },
    })
    .to_string()
}

struct Person {
    site: Site,
    browser: Browser,
}

impl Person {
    async fn signed_in() -> Self {
        Self::at(Site::start().await).await
    }

    async fn at(site: Site) -> Self {
        let browser = Browser::start().await;
        browser.look("light", 1280).await;
        browser.open(&site.link).await;
        browser
            .until("the link signs in", "location.pathname === '/jobs'")
            .await;
        Self { site, browser }
    }

    async fn go(&self, path: &str) {
        self.browser.open(&format!("{}{path}", self.site.address)).await;
    }

    /// Presses what has these words on it.
    async fn press(&self, words: &str) {
        let script = format!(
            "const found = [...document.querySelectorAll('main a, main button')].find((each) => each.textContent.trim() === {});
             found?.click(); return Boolean(found);",
            json!(words)
        );
        assert_eq!(
            self.browser.run(&script).await,
            true,
            "there is nothing to press named {words}"
        );
    }

    /// Submits by the form and answers the job's address.
    async fn submit(&self, name: &str, script: &str) -> String {
        self.go("/jobs/new").await;
        let fill = format!(
            "document.getElementById('document').value = {}",
            json!(document(name, script))
        );
        self.browser.run(&fill).await;
        self.press("Submit").await;
        self.browser
            .until("the new job's page opens", "location.pathname.startsWith('/jobs/job_')")
            .await;
        text(self.browser.run("return location.pathname").await)
    }

    /// Drags over the curve: the numbers' page shows that part, and no more.
    async fn looks_closer(&self, job: &str) {
        let drag = "const svg = document.querySelector('#plot-loss svg');
             const box = svg.getBoundingClientRect();
             const at = (share) => ({ bubbles: true, button: 0, pointerType: 'mouse', clientX: box.left + share * box.width, clientY: box.top + 40 });
             svg.dispatchEvent(new PointerEvent('pointerdown', at(0.4)));
             document.dispatchEvent(new PointerEvent('pointermove', at(0.6)));
             document.dispatchEvent(new PointerEvent('pointerup', at(0.7)));";
        self.browser.run(drag).await;
        self.browser
            .until(
                "the numbers' page opens",
                &format!("location.pathname === '{job}/numbers/loss' && /from=\\d+&to=\\d+$/.test(location.search)"),
            )
            .await;
        self.remember().await;
        let rows = self
            .browser
            .run("return document.querySelectorAll('main tbody tr').length")
            .await
            .as_u64()
            .unwrap();
        assert!(rows > 2 && rows < STEPS as u64 - 2, "{rows} rows");
        let points = "return JSON.parse(document.querySelector('.plot svg').dataset.hover).series[0].points.length";
        assert_eq!(
            self.browser.run(points).await,
            json!(rows),
            "the plot shows what the table has"
        );
        self.quiet("the numbers' page").await;
    }

    /// Chooses lines by their numbers, opens the address again, and sifts.
    async fn picks_lines(&self, job: &str) {
        self.go(&format!("{job}/logs")).await;
        let pick = "const press = (line, shiftKey) => document.querySelector(`a.n[data-n='${line}']`).dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true, shiftKey }));
             press(9, false); press(6, true);
             return [document.querySelectorAll('.l.at').length, location.search + location.hash]";
        let place = "?attempt=1&at=main-0.stdout.6&to=main-0.stdout.9#main-0.stdout.6";
        assert_eq!(self.browser.run(pick).await, json!([4, place]));
        self.go(&format!("{job}/logs{place}")).await;
        self.remember().await;
        let marked = "return [...document.querySelectorAll('.l.at a.n')].map((number) => number.dataset.n)";
        assert_eq!(
            self.browser.run(marked).await,
            json!(["6", "7", "8", "9"]),
            "the address brings them back"
        );
        self.quiet("a range of lines").await;

        self.go(&format!("{job}/logs?search=step%3D3&only=true")).await;
        self.remember().await;
        let shown = "return [...document.querySelectorAll('.l code')].map((code) => code.textContent.split(' ')[0])";
        let expected: Vec<String> = (1..=STEPS)
            .map(|step| format!("step={step}"))
            .filter(|text| text.contains("step=3"))
            .collect();
        assert_eq!(self.browser.run(shown).await, json!(expected));
        self.quiet("the sifted lines").await;
    }

    /// A reload would forget it.
    async fn remember(&self) {
        self.browser.run("window.stayed = true").await;
    }

    async fn quiet(&self, place: &str) {
        assert_eq!(
            self.browser.run("return window.stayed === true").await,
            true,
            "{place} was reloaded"
        );
        assert_eq!(self.browser.complaints().await, Vec::<String>::new(), "{place}");
    }
}

fn text(value: Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_job_is_submitted_followed_and_seen_to_its_end_without_a_reload() {
    let person = Person::signed_in().await;
    let browser = &person.browser;
    let script = format!(
        "import time\nfor step in range(1, {STEPS} + 1):\n    print(f'step={{step}} loss={{1 / step:.4f}}')\n    time.sleep(1)\n"
    );
    let job = person.submit("curve", &script).await;
    person.remember().await;
    browser
        .until(
            "the page says by itself that it runs",
            "document.querySelector('.sentence').textContent.includes('Running')",
        )
        .await;
    browser
        .until(
            "and draws the loss",
            "document.querySelector('#plot-loss svg path, #plot-loss svg polyline')",
        )
        .await;
    person.quiet("the job's page").await;

    person.press("Logs").await;
    browser
        .until("lines are there", "document.querySelectorAll('#log .l').length > 0")
        .await;
    person.remember().await;
    let count = "return document.querySelectorAll('#log .l').length";
    let before = browser.run(count).await.as_u64().unwrap();
    browser
        .until(
            "more lines arrive",
            &format!("document.querySelectorAll('#log .l').length > {before}"),
        )
        .await;
    browser
        .until(
            "the end is told",
            "document.getElementById('log-say').textContent.includes('complete')",
        )
        .await;
    let steps = "return [...document.querySelectorAll('#log .l code')].map((code) => Number(/step=(\\d+)/.exec(code.textContent)[1]))";
    let all: Vec<u64> = (1..=STEPS as u64).collect();
    assert_eq!(browser.run(steps).await, json!(all), "every line once and in order");
    person.quiet("the logs' page").await;

    person.go(&job).await;
    person.remember().await;
    browser
        .until(
            "it succeeded",
            "document.querySelector('.sentence').textContent.includes('Succeeded')",
        )
        .await;
    let points = "return JSON.parse(document.querySelector('#plot-loss svg').dataset.hover).series[0].points.length";
    assert_eq!(browser.run(points).await, json!(STEPS), "the curve has every step");
    person.quiet("the finished job's page").await;
    person.looks_closer(&job).await;
    person.picks_lines(&job).await;
}

#[tokio::test]
async fn a_running_job_is_cancelled_by_its_page_and_leaves_the_list_of_running_ones() {
    let person = Person::signed_in().await;
    let browser = &person.browser;
    let job = person
        .submit(
            "endless",
            "import time\nfor step in range(6000):\n    print(f'step={step}')\n    time.sleep(0.1)\n",
        )
        .await;
    browser
        .until(
            "it runs",
            "document.querySelector('.sentence').textContent.includes('Running')",
        )
        .await;
    person.press("Cancel").await;
    browser
        .until("the page asks first", &format!("location.pathname === '{job}/cancel'"))
        .await;
    browser.run("document.querySelector('main form button').click()").await;
    browser
        .until("the job's page opens again", &format!("location.pathname === '{job}'"))
        .await;
    person.remember().await;
    browser
        .until(
            "it was cancelled",
            "document.querySelector('.sentence').textContent.includes('Cancelled')",
        )
        .await;
    person.quiet("the cancelled job's page").await;

    person.go("/jobs?state=running").await;
    person.remember().await;
    assert_eq!(browser.run("return document.querySelectorAll('a.row').length").await, 0);
    person.go("/jobs?state=cancelled").await;
    person.remember().await;
    assert_eq!(
        browser.run("return document.querySelector('a.row').textContent").await,
        "endless"
    );
    person.quiet("the list").await;

    // The other lists follow as well: when a node or a cluster was last seen is told again and again.
    for list in ["/nodes", "/clusters"] {
        person.go(list).await;
        person.remember().await;
        let seen = "return document.querySelector('[data-live-rows] tbody time').dateTime";
        let first = text(browser.run(seen).await);
        browser
            .until(
                "a row changes by itself",
                &format!("document.querySelector('[data-live-rows] tbody time').dateTime !== '{first}'"),
            )
            .await;
        person.quiet(list).await;
    }
}

// The line is carried while this waits for the server's first words.
#[tokio::test(flavor = "multi_thread")]
async fn a_form_whose_create_got_no_answer_is_sent_again_and_makes_one_job() {
    let database = postgres::database().await;
    let line = Line::to(database.url()).await;
    let person = Person::at(Site::on(database, line.url())).await;
    let browser = &person.browser;
    // The connections and their statements are there, so that Postgres takes the next create whole.
    person.submit("before", "print('step=1')\n").await;

    person.go("/jobs/new").await;
    let typed = format!("{}\n", document("kept", "print('step=1')\n"));
    let fill = format!("document.getElementById('document').value = {}", json!(typed));
    browser.run(&fill).await;
    line.cut();
    person.press("Submit").await;
    browser
        .until(
            "the page says that the records are away",
            "document.querySelector('h1').textContent === 'The database is away'",
        )
        .await;
    let kept = "return document.querySelector('textarea[name=document]').value";
    assert_eq!(browser.run(kept).await, json!(typed), "nothing that was typed is lost");
    line.mend();
    // Other connections may have to find out yet that theirs are dead; the button of each page is pressed once.
    let again = "(() => {
        if (location.pathname.startsWith('/jobs/job_')) return true;
        const button = [...document.querySelectorAll('main button')].find((each) => each.textContent === 'Send it again');
        if (button && !button.dataset.pressed) { button.dataset.pressed = 1; button.click(); }
        return false;
    })()";
    browser.until("the same form makes the job", again).await;
    let job = text(browser.run("return location.pathname").await);

    person.go("/jobs?text=kept").await;
    let rows = "return [...document.querySelectorAll('a.row')].map((link) => link.getAttribute('href'))";
    assert_eq!(browser.run(rows).await, json!([job]), "exactly one job is there");
}

#[tokio::test]
async fn a_team_is_made_and_kept_on_its_pages() {
    let person = Person::signed_in().await;
    let browser = &person.browser;
    let fill = async |id: &str, value: &str| {
        let script = format!("document.getElementById('{id}').value = {}", json!(value));
        browser.run(&script).await;
    };
    person.go("/teams").await;
    fill("t-name", "vision").await;
    person.press("Make team").await;
    browser
        .until(
            "its page opens",
            "document.querySelector('h1').textContent === 'vision'",
        )
        .await;
    let team = text(browser.run("return location.pathname").await);

    // Oneself, by the id that Settings shows.
    person.go("/settings").await;
    let id = "return [...document.querySelectorAll('dd')].map((each) => each.textContent).find((each) => each.startsWith('user_'))";
    let user = text(browser.run(id).await);
    person.go(&team).await;
    fill("m-user", &user).await;
    person.press("Put into the team").await;
    browser
        .until(
            "the notice says so",
            "document.querySelector('.notice')?.textContent.includes('in the team')",
        )
        .await;

    // More keys than the form began with, and a value of several lines.
    person.press("Another key").await;
    fill("s-name", "storage").await;
    for (place, (key, value)) in [("a", "one-1"), ("b", "two\nlines"), ("c", "three"), ("d", "four")]
        .iter()
        .enumerate()
    {
        fill(&format!("s-key-{}", place + 1), key).await;
        fill(&format!("s-value-{}", place + 1), value).await;
    }
    person.press("Put the secret").await;
    browser
        .until(
            "the notice says so",
            "document.querySelector('.notice')?.textContent.includes('Nobody can read it back')",
        )
        .await;
    let page = text(browser.run("return document.documentElement.outerHTML").await);
    assert!(
        !page.contains("one-1") && !page.contains("lines"),
        "no value is ever shown"
    );
    let keys = "return [...document.querySelectorAll('td[data-name=Keys] code')].map((each) => each.textContent)";
    assert_eq!(browser.run(keys).await, json!(["a", "b", "c", "d"]));

    // It is asked for by name before it is forgotten.
    person.press("Forget storage").await;
    browser
        .until(
            "the page asks",
            "document.querySelector('h1').textContent === 'Forget storage?'",
        )
        .await;
    fill("name", "storage").await;
    person.press("Forget the secret").await;
    browser
        .until(
            "it is gone",
            &format!("location.pathname === '{team}' && !document.querySelector('td[data-name=Keys]')"),
        )
        .await;

    person
        .go(&format!("/audit?subject={}", team.trim_start_matches("/teams/")))
        .await;
    let deeds = "return [...document.querySelectorAll('td[data-name=Deed]')].map((each) => each.textContent)";
    assert_eq!(
        browser.run(deeds).await,
        json!(["secret.delete", "team.member", "team.create"])
    );
    assert_eq!(browser.complaints().await, Vec::<String>::new());
}
