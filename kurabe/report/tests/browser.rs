//! The page in a browser without a screen: that its script runs without an error, that it asks
//! nothing of any network, that the charts are drawn, and that the numbers a reader sees are those of
//! the records. Skipped, with the reason, where no Chromium is installed.

mod harness;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use harness::{Made, complete, make, study, time_ns, workload_report};
use lab::record::{Outcome, Phase, Record};
use report::page::page;
use report::source::ResultSource;

const LABELS: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// The installed browser; says so and is None where there is none.
fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = std::env::split_paths(&path)
        .flat_map(|place| names.map(|name| place.join(name)))
        .find(|program| program.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: no Chromium is installed (package chromium)");
    }
    found
}

/// What became of a page.
struct Seen {
    /// The document after the scripts have run.
    dom: String,
    /// Messages of the page's console, one a line.
    console: Vec<String>,
    /// What was asked of the network: the first line of each request.
    requests: Vec<String>,
}

/// Opens a page, and takes from its requests those that the browser makes whatever it shows.
fn open(browser: &Path, place: &Path, html: &str) -> Seen {
    let own = own_hosts(browser);
    let mut seen = open_and_note(browser, place, html);
    seen.requests.retain(|line| !own.iter().any(|known| known == host(line)));
    seen
}

/// Opens a page in a browser whose only way out is a proxy that counts and answers nothing.
fn open_and_note(browser: &Path, place: &Path, html: &str) -> Seen {
    let page = place.join("page.html");
    fs::write(&page, html).unwrap();
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = proxy.local_addr().unwrap().port();
    let requests = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&requests);
    // The thread ends with the process; the listener has nothing to give back.
    std::thread::spawn(move || {
        for connection in proxy.incoming().flatten() {
            let mut line = String::new();
            let _ = connection.set_read_timeout(Some(Duration::from_secs(5)));
            if BufReader::new(connection).read_line(&mut line).is_ok_and(|length| length > 0) {
                noted.lock().unwrap().push(line.trim_end().to_string());
            }
        }
    });
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--disable-background-networking", "--disable-component-update", "--no-first-run"])
        .args(["--disable-sync", "--disable-default-apps", "--disable-extensions"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=8000", "--dump-dom"])
        .arg("--window-size=1100,900")
        .arg(format!("--proxy-server=http://127.0.0.1:{port}"))
        .arg("--proxy-bypass-list=<-loopback>")
        .arg(format!("--user-data-dir={}", place.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("the browser starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    Seen {
        dom: String::from_utf8(output.stdout).expect("a document is text"),
        console: errors.lines().filter(|l| l.contains(":CONSOLE")).map(str::to_string).collect(),
        requests: requests.lock().unwrap().clone(),
    }
}

/// The hosts that this browser asks of its own accord, for the time, for updates, for an account, as
/// a page without anything shows them: there is no flag that stops all of them. Hosts and not whole
/// domains, so that a font or a script from the browser's maker is seen.
fn own_hosts(browser: &Path) -> &'static [String] {
    static HOSTS: OnceLock<Vec<String>> = OnceLock::new();
    HOSTS.get_or_init(|| {
        let place = tempfile::Builder::new().prefix("test-of-kurabe-browser-").tempdir().unwrap();
        let empty = "<!doctype html><title>x</title><link rel=\"icon\" href=\"data:,\">";
        let seen = open_and_note(browser, place.path(), empty);
        seen.requests.iter().map(|line| host(line).to_string()).collect()
    })
}

/// The host in the first line of a request to a proxy.
fn host(line: &str) -> &str {
    let target = line.split(' ').nth(1).unwrap_or_default();
    target.trim_start_matches("http://").split(['/', ':', '?']).next().unwrap_or_default()
}

fn rendered(made: &Made) -> String {
    page(&ResultSource::read(&made.directory()).unwrap(), &[])
}

/// The cells of the table with this caption: the value of each that carries one, else its text.
fn table(dom: &str, caption: &str) -> Vec<Vec<String>> {
    let after = dom.split(&format!("<caption>{caption}</caption>")).nth(1);
    let after = after.unwrap_or_else(|| panic!("no table '{caption}'"));
    let body = after.split("<tbody>").nth(1).unwrap().split("</tbody>").next().unwrap();
    let cell = |text: &str| {
        let inner = text.split_once('>').unwrap().1;
        match inner.split_once(" value=\"") {
            Some((_, rest)) => rest.split('"').next().unwrap().to_string(),
            None => inner.split("</t").next().unwrap().to_string(),
        }
    };
    body.split("<tr>").skip(1).map(|row| row.split("<t").skip(1).map(cell).collect()).collect()
}

/// A study of every kind of chart, with two workloads, a failure and a warm-up.
fn everything() -> Made {
    let mut text = study(&LABELS, &["first", "second"], 6);
    text.warmup = Some(1);
    make(&text, |record| {
        let time = time_ns(record, &LABELS);
        complete(record, time);
        if record.workload == "second" {
            record.load = Some(workload_report(1e17 / time as f64));
        }
        if record.trial == 9 {
            record.outcome = Outcome::Failed {
                phase: Phase::Run,
                message: "it broke".into(),
                output: String::new(),
            };
        }
        true
    })
}

#[test]
fn the_page_runs_without_an_error_and_without_a_network() {
    let Some(browser) = browser() else { return };
    let place = tempfile::Builder::new().prefix("test-of-kurabe-browser-").tempdir().unwrap();
    let made = everything();
    let html = rendered(&made);
    let seen = open(&browser, place.path(), &html);
    assert_eq!(seen.console, Vec::<String>::new());
    assert_eq!(seen.requests, Vec::<String>::new());
    let figures = html.matches("<figure ").count();
    assert!(figures >= 12, "{figures}");
    // The pictures are in the page; the script only lets them answer.
    let drawn = seen.dom.matches("aria-roledescription=\"chart").count();
    assert_eq!(drawn, figures, "of {figures} charts");
    assert_eq!(html.matches("<svg class=\"area\"").count(), figures);
    let unfolded = html.replace("<details>", "<details open>");
    let seen = open(&browser, place.path(), &unfolded);
    assert_eq!(seen.console, Vec::<String>::new());
    assert!(seen.dom.matches("aria-pressed=\"true\"").count() > 20, "legends are buttons");
}

/// A point is told by the keys, and a part is enlarged and left again.
#[test]
fn a_chart_tells_its_points_and_can_be_enlarged() {
    let Some(browser) = browser() else { return };
    let place = tempfile::Builder::new().prefix("test-of-kurabe-browser-").tempdir().unwrap();
    let html = rendered(&everything());
    let keys = "(() => { const area = page.querySelector('.plot svg'), plot = area.closest('.plot');
        const press = (key) => area.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        const said = () => plot.querySelector('.status').textContent, back = plot.querySelector('.back');
        press('ArrowRight'); const first = said(); press('ArrowRight'); const second = said();
        press('+'); const zoomed = !back.hidden && plot.querySelector('.zoom').getAttribute('width') === '200%';
        press('Escape'); const whole = back.hidden;
        const turn = (deltaY, ctrlKey) => area.dispatchEvent(new WheelEvent('wheel', { deltaY, ctrlKey, cancelable: true }));
        turn(-1, false); const still = back.hidden; turn(-1, true); const near = !back.hidden; turn(1, true);
        return [first.length > 5, first !== second, zoomed, whole, still, near, back.hidden].join(' '); })()";
    let seen = in_a_frame(&browser, place.path(), &html, 900, &keys.replace('\n', " "));
    assert_eq!(seen, "true true true true true true true");
}

/// Whether each button of this name in a legend is pressed.
fn pressed(dom: &str, name: &str) -> Vec<bool> {
    let buttons = dom.split("<button ").skip(1).filter_map(|rest| rest.split("</button>").next());
    let named = buttons.filter(|button| button.ends_with(&format!("</svg>{name}")));
    named.map(|button| button.contains("aria-pressed=\"true\"")).collect()
}

#[test]
fn a_contender_that_is_hidden_is_hidden_in_every_chart() {
    let Some(browser) = browser() else { return };
    let place = tempfile::Builder::new().prefix("test-of-kurabe-browser-").tempdir().unwrap();
    let html = rendered(&everything());
    let before = pressed(&open(&browser, place.path(), &html).dom, "xfs");
    assert!(before.len() > 5 && before.iter().all(|pressed| *pressed), "{before:?}");
    let click = "<script>setTimeout(() => Array.from(document.querySelectorAll(\".legend button\")).find((button) => button.textContent === \"xfs\").click(), 3000)</script></body>";
    let seen = open(&browser, place.path(), &html.replace("</body>", click));
    assert_eq!(seen.console, Vec::<String>::new());
    assert_eq!(pressed(&seen.dom, "xfs"), vec![false; before.len()]);
    assert!(pressed(&seen.dom, "ext4").iter().all(|pressed| *pressed));
    // Of the phases nothing is hidden but what was from the first.
    assert!(pressed(&seen.dom, "run").iter().all(|pressed| *pressed));
}

#[test]
fn only_what_can_be_scrolled_is_a_stop_of_the_tab_key() {
    let Some(browser) = browser() else { return };
    let place = tempfile::Builder::new().prefix("test-of-kurabe-browser-").tempdir().unwrap();
    let count = "<script>setTimeout(() => {
        const fits = Array.from(document.querySelectorAll('.scroll'))
            .filter((table) => table.checkVisibility() && table.scrollWidth <= table.clientWidth);
        const stops = fits.filter((table) => table.hasAttribute('tabindex'));
        document.title = stops.length + ' of ' + fits.length;
    }, 5000)</script></body>";
    let html =
        rendered(&everything()).replace("<details>", "<details open>").replace("</body>", count);
    let dom = open(&browser, place.path(), &html).dom;
    let title = dom.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
    let (stops, fits) = title.split_once(" of ").unwrap();
    assert!(stops == "0" && fits.parse::<usize>().unwrap() > 1, "{title}");
}

#[test]
fn the_numbers_in_the_page_are_those_of_the_records() {
    let Some(browser) = browser() else { return };
    let place = tempfile::Builder::new().prefix("test-of-kurabe-browser-").tempdir().unwrap();
    let made = everything();
    let dom = open(&browser, place.path(), &rendered(&made)).dom;
    let first: Vec<&Record> = made.records.iter().filter(|r| r.workload == "first").collect();
    let rows = table(&dom, "All rounds");
    assert_eq!(rows.len(), first.len());
    for (row, record) in rows.iter().zip(first) {
        let value = |column: usize| row[column].parse::<f64>().unwrap_or(f64::NAN);
        assert_eq!(value(0), f64::from(record.trial), "{row:?}");
        assert_eq!(value(1), f64::from(record.block + 1), "{row:?}");
        assert_eq!(row[2], record.contender.label);
        match record.time_ns() {
            Some(time_ns) => assert_eq!(value(4), time_ns as f64, "{row:?}"),
            None => assert_eq!((row[3].as_str(), row[4].as_str()), ("failed", "-")),
        }
        assert_eq!(value(5), record.phase(Phase::Run).unwrap().elapsed_ns as f64);
        let device = record.run_device().unwrap();
        assert_eq!((value(8), value(9)), (device.written_bytes as f64, device.flushes as f64));
    }
    // What was compared, to the last bit: as costs.
    let analysis = ResultSource::read(&made.directory()).unwrap().analysis;
    let comparisons = &analysis.workloads[0].comparisons;
    let rows = table(&dom, "Cost relative to ext4");
    assert_eq!(rows.len(), comparisons.len());
    for row in rows {
        let found = comparisons.iter().find(|comparison| comparison.contender == row[0]).unwrap();
        let shown: Vec<Option<f64>> = row[1..4].iter().map(|text| text.parse().ok()).collect();
        let ends = [found.ratio, found.low, found.high];
        assert_eq!(shown, ends);
    }
    // The ranking shows the medians.
    for row in table(&dom, "Ranking under first") {
        let contenders = &analysis.workloads[0].contenders;
        let found = contenders.iter().find(|contender| contender.label == row[0]).unwrap();
        assert_eq!(row[1].parse::<f64>().ok(), Some(found.metrics[0].summary.median), "{row:?}");
    }
}

/// What a script of this value says of a page in a frame of this width; `page` is its document.
fn in_a_frame(browser: &Path, place: &Path, html: &str, width_px: u32, value: &str) -> String {
    let inner = html.replace('&', "&amp;").replace('"', "&quot;");
    let outer = format!(
        "<!doctype html><title>x</title><iframe style=\"width:{width_px}px;height:900px;border:0\" srcdoc=\"{inner}\"></iframe><script>setTimeout(() => {{ const page = frames[0].document; document.title = {value}; }}, 7000)</script>"
    );
    let dom = open_and_note(browser, place, &outer).dom;
    dom.split("<title>").nth(1).unwrap().split("</title>").next().unwrap().to_string()
}

#[test]
fn a_phone_shows_the_whole_page_and_what_is_uncertain_in_it() {
    let Some(browser) = browser() else { return };
    let place = tempfile::Builder::new().prefix("test-of-kurabe-browser-").tempdir().unwrap();
    let text = study(&LABELS, &["load"], 4);
    let made = make(&text, |record| {
        let wild = record.contender.label == "xfs" && record.block % 2 == 0;
        complete(record, if wild { 90_000_000_000 } else { 1_000_000_000 });
        // As much as the device wrote, so that the line of that lies at the right end.
        record.command.as_mut().unwrap().storage_written_bytes = Some(4 << 20);
        true
    });
    let html = rendered(&made);
    let widths = "page.documentElement.scrollWidth - page.documentElement.clientWidth";
    let beyond = in_a_frame(&browser, place.path(), &html, 390, widths);
    assert_eq!(beyond, "0", "px of the page are beyond the screen");
    // Nothing of a picture is cut off: the labels of its axes lie within the screen.
    let cut = "Array.from(page.querySelectorAll('.plot text')).filter((text) => text.checkVisibility() && text.style.display !== 'none').filter((text) => { const { left, right } = text.getBoundingClientRect(); return left < 0 || right > 390; }).map((text) => text.textContent).join(' ')";
    assert_eq!(in_a_frame(&browser, place.path(), &html, 390, cut), "");
}

#[test]
fn the_answer_and_its_pictures_fit_the_first_two_screens() {
    let Some(browser) = browser() else { return };
    let place = tempfile::Builder::new().prefix("test-of-kurabe-browser-").tempdir().unwrap();
    let made = make(&study(&LABELS, &["one", "two", "three", "four", "five"], 5), |record| {
        // Who wins depends on the workload, so that the sentences are several.
        let place = LABELS.iter().position(|label| *label == record.contender.label).unwrap();
        let best = usize::from(record.workload == "two" || record.workload == "four");
        let slower = (place + best) as u64 % 3 * 150_000_000;
        complete(record, 1_000_000_000 + slower + u64::from(record.trial * 7919 % 97) * 900_000);
        true
    });
    let value = "page.querySelector('#overview').getBoundingClientRect().bottom";
    let html = rendered(&made);
    let bottom_px: f64 = in_a_frame(&browser, place.path(), &html, 1280, value).parse().unwrap();
    assert!(bottom_px > 300.0 && bottom_px <= 1860.0, "{bottom_px}");
}

#[test]
fn a_hostile_name_does_nothing_in_a_browser() {
    let Some(browser) = browser() else { return };
    let place = tempfile::Builder::new().prefix("test-of-kurabe-browser-").tempdir().unwrap();
    let hostile = "<img src=x onerror=document.title='owned'>";
    let labels = [hostile, "</script><script>document.title='owned'</script>", "\"&'"];
    let contenders: Vec<String> = labels.iter().map(|label| format!("{label}: ext4")).collect();
    let contenders: Vec<&str> = contenders.iter().map(String::as_str).collect();
    let made = make(&study(&contenders, &["echo '<b onclick=x>%{x}'"], 4), |record| {
        complete(record, 1_000_000_000 + u64::from(record.trial) * 1_000_000);
        true
    });
    let html = rendered(&made);
    let seen = open(&browser, place.path(), &html);
    let titled = |dom: &str| dom.split("<title>").nth(1).unwrap().starts_with("owned");
    assert!(!titled(&seen.dom));
    assert_eq!((seen.console, seen.requests), (Vec::<String>::new(), Vec::<String>::new()));
    // The canary: what the test looks for is there when nothing is escaped.
    let canary = html.replace("<main>", &format!("<main>{hostile}"));
    assert!(titled(&open(&browser, place.path(), &canary).dom));
}

#[test]
fn a_request_and_an_error_would_be_seen() {
    let Some(browser) = browser() else { return };
    let place = tempfile::Builder::new().prefix("test-of-kurabe-browser-").tempdir().unwrap();
    let asking = "<!doctype html><title>x</title><link rel=\"stylesheet\" href=\"http://fonts.googleapis.com/css\"><img src=\"http://kurabe.invalid/x.png\"><img src=\"https://www.gstatic.com/x.png\"><script>nothing.at.all()</script>";
    let seen = open(&browser, place.path(), asking);
    for asked in ["kurabe.invalid", "fonts.googleapis.com", "www.gstatic.com"] {
        assert!(
            seen.requests.iter().any(|line| host(line) == asked),
            "{asked}: {:?}",
            seen.requests
        );
    }
    assert!(!seen.console.is_empty());
}
