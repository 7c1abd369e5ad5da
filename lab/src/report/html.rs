//! A self-contained HTML page: no scripts, fonts or images from elsewhere.

use std::fmt::Write;

use super::case_tables;
use super::clu_tables;
use super::model::{Contender, Section};
use super::plot::{self, Glance};
use super::published::PublishedStudy;
use super::study_tables;
use super::svg::escaped;
use super::table::{self, Cell, ReportTable};
use super::{environment, number};
use crate::result::ResultFile;

/// The server that every client supports: clients are compared with it.
const COMMON_SERVER: &str = "soft-ioc";

/// The page of a result.
pub fn page(run: &ResultFile, published: &[PublishedStudy]) -> String {
    let sections = Section::of(run);
    let day = run.started.get(..10).map_or(String::new(), |day| format!(" of {day}"));
    let title = format!("The {} run{day}", run.suite);
    let mut body = head(run, &title);
    body += &contents(&sections, run);
    body += "<main>";
    body += &at_a_glance(&sections);
    body += &answers(run);
    let mut groups: Vec<Vec<&Section<'_>>> = Vec::new();
    for section in &sections {
        match groups.last_mut().filter(|group| group.iter().any(|other| other.question == section.question)) {
            Some(group) => group.push(section),
            None => groups.push(vec![section]),
        }
    }
    for group in &groups {
        body += &question(group, published);
    }
    body += &of_study(run);
    body += &without_number(run);
    body += &method(run, published);
    body += "</main>";
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <title>Fodo laboratory: {}</title><style>{}</style></head>\n<body>{body}</body></html>\n",
        escaped(&title),
        include_str!("page.css")
    )
}

/// The tables of studies 002 to 004, each with its plot if it has one.
fn of_study(run: &ResultFile) -> String {
    let tables = study_tables::tables(run).into_iter().chain(case_tables::tables(run)).chain(clu_tables::tables(run));
    let mut text = String::new();
    for (index, titled) in tables.enumerate() {
        let _ = write!(text, "<section id=\"study-{index}\"><h2>{}</h2>", escaped(&titled.title));
        text +=
            &titled.section.as_ref().map_or(String::new(), |section| curves(section, &format!("study-{index}-curves")));
        text += &html(&titled.table, &titled.title);
        let notes: String = titled.notes.iter().map(|note| format!("<li>{}</li>", escaped(note))).collect();
        let _ = write!(text, "{}</section>", if notes.is_empty() { notes } else { format!("<ul>{notes}</ul>") });
    }
    for line in [study_tables::legend(run), case_tables::legend(run), clu_tables::legend(run)].concat() {
        let _ = write!(text, "<p>{}</p>", escaped(&line));
    }
    text
}

/// The rates or times of a section over its points, with the names of the curves; at one point the latencies and all repetitions.
fn curves(section: &Section<'_>, id: &str) -> String {
    let caption = if section.rows().iter().any(|row| row.is_rate()) { "Rate over n" } else { "Time over n" };
    let mut figures = plot::over_n(section, &[], id).map_or(String::new(), |picture| figure(caption, &picture));
    if let Some(point) = section.best_point().filter(|_| section.points.len() == 1) {
        let latencies = plot::percentiles(section, point, &format!("{id}-latency"));
        let repetitions = plot::repetitions(section, point, &format!("{id}-dots"));
        for (caption, picture) in [("Latency by percentile", latencies), ("All repetitions", repetitions)] {
            figures += &picture.map_or(String::new(), |picture| figure(caption, &picture));
        }
    }
    if figures.is_empty() {
        return figures;
    }
    format!("{}<div class=\"figures\">{figures}</div>", legend(section, &[]))
}

fn head(run: &ResultFile, title: &str) -> String {
    let warning = environment::warning(run).map_or(String::new(), |words| format!("<p class=\"warning\">{words}</p>"));
    format!(
        "<header><p class=\"kicker\">Fodo \u{b7} performance laboratory</p><h1>{}</h1><p class=\"place\">{}</p>{warning}\
         </header>",
        // Prevents a line break within a date.
        escaped(title).replace('-', "\u{2011}"),
        escaped(&environment::in_one_line(run))
    )
}

fn contents(sections: &[Section<'_>], run: &ResultFile) -> String {
    let mut links = String::from("<a href=\"#glance\">At a glance</a>");
    if !run.answers.is_empty() {
        links += "<a href=\"#answers\">Answers</a>";
    }
    let mut last = "";
    for section in sections.iter().filter(|section| !section.question.is_empty()) {
        if section.question != last {
            let _ = write!(links, "<a href=\"#{}\">{}</a>", anchor(section.question), escaped(section.question));
            last = section.question;
        }
    }
    format!("<nav aria-label=\"Contents\">{links}<a href=\"#method\">Method</a></nav>")
}

/// An anchor within the page: letters and digits only.
fn anchor(text: &str) -> String {
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    text.chars().map(letter).collect()
}

/// Every question at the point where it is best compared, all clients with one server, relative to Fodo's time.
fn at_a_glance(sections: &[Section<'_>]) -> String {
    let ours = Contender { client: "fodo", server: COMMON_SERVER };
    let mut rows = Vec::new();
    let mut lines = Vec::new();
    for section in sections.iter().filter(|section| section.series == "two cores") {
        let Some(point) = section.best_point() else { continue };
        let Some(our_ns) =
            section.row(ours, point).filter(|row| !row.is_rate()).and_then(|row| row.median_per_operation())
        else {
            continue;
        };
        let peers: Vec<(&str, f64)> = section
            .at(point)
            .into_iter()
            .filter(|(contender, row)| {
                contender.server == COMMON_SERVER && contender.client != "fodo" && !row.is_rate()
            })
            .filter_map(|(contender, row)| Some((contender.client, row.median_per_operation()? / our_ns)))
            .collect();
        let variant = if section.variant == "none" { String::new() } else { format!(" {}", section.variant) };
        let name = format!("{}{variant}, {}", section.question, number::short(point as f64));
        lines.push(glance_line(&format!("{}{variant}: {}", section.question, section.line(point)), our_ns, &peers));
        rows.push(Glance { name, ratios: peers });
    }
    let words =
        "Each line is a question, each dot a client with softIoc as server, on two cores. The axis is logarithmic.";
    let Some(picture) = plot::glance(&rows, words, "glance-plot") else { return String::new() };
    let mut clients: Vec<&str> = vec!["fodo"];
    for (client, _) in rows.iter().flat_map(|row| &row.ratios) {
        if !clients.contains(client) {
            clients.push(client);
        }
    }
    let legend: String = clients
        .iter()
        .map(|client| format!("<li><span class=\"blot {}\"></span>{}</li>", plot::colour(client), escaped(client)))
        .collect();
    let table = ReportTable { head: ["", "Fodo", "fastest peer", "by Fodo's"].map(str::to_owned).to_vec(), lines };
    format!(
        "<section id=\"glance\"><h2>At a glance</h2><p class=\"lead\">{words} The line at 1\u{d7} is Fodo.</p>\
         <div class=\"halves\"><figure><ul class=\"legend\">{legend}</ul>{picture}</figure>{}</div></section>",
        html(&table, "The same in numbers")
    )
}

fn glance_line(name: &str, our_ns: f64, peers: &[(&str, f64)]) -> table::TableRow {
    let fastest = peers.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    let cell = |main: String| Cell { main, ..Cell::default() };
    let peer = fastest.map_or(String::new(), |(client, ratio)| format!("{client}, {}", number::time(ratio * our_ns)));
    let ratio = fastest.map_or(String::new(), |(_, ratio)| number::times(*ratio));
    let cells = vec![cell(number::time(our_ns)), cell(peer), cell(ratio)];
    table::TableRow { name: name.to_owned(), cells }
}

fn answers(run: &ResultFile) -> String {
    if run.answers.is_empty() {
        return String::new();
    }
    let mut lines = Vec::new();
    for answer in &run.answers_by_question() {
        let contender = Contender { client: &answer.client, server: &answer.server };
        let yes = if answer.yes { "yes" } else { "no" };
        let cells = vec![Cell::words(&contender.text()), Cell::words(yes), Cell::words(&answer.words)];
        lines.push(table::TableRow { name: answer.question.clone(), cells });
    }
    let head = ["", "asked", "answer", "what was seen"].map(str::to_owned).to_vec();
    format!("<section id=\"answers\"><h2>Yes or no</h2>{}</section>", html(&ReportTable { head, lines }, "Answers"))
}

/// All series and variants of one question: two cores shown, the others folded.
fn question(group: &[&Section<'_>], published: &[PublishedStudy]) -> String {
    let Some(first) = group.first() else { return String::new() };
    let heading =
        if first.title.is_empty() { String::new() } else { format!(" <span>{}</span>", escaped(first.title)) };
    let mut text =
        format!("<section id=\"{}\"><h2><b>{}</b>{heading}</h2>", anchor(first.question), escaped(first.question));
    for (index, section) in group.iter().enumerate() {
        let inner = place(section, published, &format!("{}-{index}", anchor(first.question)));
        let name = escaped(&section.place());
        if index == 0 || section.series == first.series {
            let _ = write!(text, "<h3>{name}</h3>{inner}");
        } else {
            let _ = write!(text, "<details><summary>{name}</summary>{inner}</details>");
        }
    }
    text + "</section>"
}

fn place(section: &Section<'_>, published: &[PublishedStudy], id: &str) -> String {
    let over_n = plot::over_n(section, published, &format!("{id}-curves"));
    let mut figures = String::new();
    if let Some(picture) = over_n {
        figures += &figure("What one operation takes, over n", &picture);
    }
    let mut ledger = String::new();
    let mut folded = String::new();
    if let Some(point) = section.best_point() {
        let at = number::grouped(point as f64);
        if let Some(picture) = plot::ratios(section, point, &format!("{id}-ratios")) {
            figures += &figure(&format!("Times the floor, n = {at}"), &picture);
        }
        if let Some(picture) = plot::percentiles(section, point, &format!("{id}-latency")) {
            figures += &figure(&format!("Latency by percentile, n = {at}"), &picture);
        }
        if let Some(picture) = plot::repetitions(section, point, &format!("{id}-dots")) {
            figures += &figure(&format!("All repetitions, n = {at}"), &picture);
        }
        let mut numbers = html(&table::spread(section, point), &format!("Spread at n = {at}"));
        if let Some(table) = table::percentiles(section, point) {
            numbers += &html(&table, &format!("Latency by percentile at n = {at}"));
        }
        folded = format!("<details><summary>the plots at n = {at} in numbers</summary>{numbers}</details>");
    }
    for (table, caption) in
        [(table::ledger(section), "What became of every update"), (table::resources(section), "What it cost")]
    {
        if let Some(table) = table {
            ledger += &html(&table, caption);
        }
    }
    let caption = if section.question.starts_with(['Q', 'P']) { "In the layout of the studies" } else { "Latency" };
    let table = html(&table::of(section, published), caption);
    format!("{}<div class=\"figures\">{figures}</div>{table}{ledger}{folded}", legend(section, published))
}

fn legend(section: &Section<'_>, published: &[PublishedStudy]) -> String {
    let mut items = String::new();
    for contender in &section.contenders {
        let (class, shape) = plot::style(*contender);
        let _ = write!(items, "<li>{}{}</li>", plot::swatch(&class, Some(shape)), escaped(&contender.text()));
    }
    for (index, study) in published.iter().enumerate() {
        let has = section.points.iter().any(|point| section.published_ns(study, *point).is_some());
        if has {
            let swatch = plot::swatch(&format!("c-study study-{index}"), None);
            let _ = write!(items, "<li>{swatch}{} (as published)</li>", escaped(&study.name()));
        }
    }
    format!("<ul class=\"legend\">{items}</ul>")
}

fn figure(caption: &str, picture: &str) -> String {
    format!("<figure><figcaption>{}</figcaption>{picture}</figure>", escaped(caption))
}

fn html(table: &ReportTable, caption: &str) -> String {
    let mut text = format!(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{0}\"><table><caption>{0}</caption><thead><tr>",
        escaped(caption)
    );
    let first = table.lines.first();
    for (index, head) in table.head.iter().enumerate() {
        let is_text = |line: &table::TableRow| line.cells.get(index.wrapping_sub(1)).is_some_and(|cell| cell.is_text);
        let class = if first.is_some_and(is_text) { " class=\"words\"" } else { "" };
        text += &match head.as_str() {
            "" => "<td></td>".to_owned(),
            // With the client above its server the column is half as wide.
            head => format!("<th scope=\"col\"{class}>{}</th>", broken(head)),
        };
    }
    text += "</tr></thead><tbody>";
    for line in &table.lines {
        let _ = write!(text, "<tr><th scope=\"row\">{}</th>", escaped(&line.name));
        for cell in &line.cells {
            text += &html_cell(cell);
        }
        text += "</tr>";
    }
    text + "</tbody></table></div>"
}

/// A column head that breaks between a client and its server only.
fn broken(head: &str) -> String {
    escaped(head).replace(" \u{2192} ", "<br>\u{2192}\u{a0}").replace('-', "\u{2011}")
}

fn html_cell(cell: &Cell) -> String {
    let class = match cell {
        Cell { why: Some(_), .. } => " class=\"none\"",
        Cell { is_bad: true, .. } => " class=\"bad\"",
        Cell { is_best: true, .. } => " class=\"best\"",
        Cell { is_text: true, .. } => " class=\"words\"",
        _ => "",
    };
    let title = cell.why.as_ref().map_or(String::new(), |why| format!(" title=\"{}\"", escaped(why)));
    let detail =
        if cell.detail.is_empty() { String::new() } else { format!("<small>{}</small>", escaped(&cell.detail)) };
    format!("<td{class}{title}>{}{detail}</td>", escaped(&cell.main))
}

fn without_number(run: &ResultFile) -> String {
    let mut items = String::new();
    for (verdict, why, keys) in table::reasons(run) {
        let _ = write!(
            items,
            "<li><b>{}</b>: {}<details><summary>{} rows</summary>{}</details></li>",
            verdict.text(),
            escaped(&why),
            keys.len(),
            escaped(&keys.join("; "))
        );
    }
    if items.is_empty() {
        return items;
    }
    format!("<section id=\"without\"><h2>Without a number</h2><ul>{items}</ul></section>")
}

fn method(run: &ResultFile, published: &[PublishedStudy]) -> String {
    let mut sentences: String =
        environment::METHOD.iter().map(|words| format!("<li>{}</li>", escaped(words))).collect();
    for study in published {
        let _ = write!(sentences, "<li>{}: {}.</li>", escaped(&study.name()), escaped(&study.title));
    }
    let mut names = String::new();
    for (name, value) in environment::all(run) {
        let _ = write!(names, "<dt>{}</dt><dd>{}</dd>", escaped(&name), escaped(&value));
    }
    format!(
        "<section id=\"method\"><h2>Method</h2><ul>{sentences}</ul></section>\
         <section id=\"environment\"><h2>Environment</h2><dl>{names}</dl></section>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::synthetic::whole;

    #[test]
    fn report_text_from_files_is_escaped_in_html() {
        let mut run = whole();
        for row in &mut run.rows {
            row.client = format!("<script>{}", row.client);
            row.title = "\"><img src=x>".into();
        }

        let page = page(&run, &PublishedStudy::all());

        assert!(!page.contains("<script") && !page.contains("<img") && page.contains("&lt;script&gt;"));
    }

    #[test]
    fn the_html_page_references_no_external_resources() {
        let page = page(&whole(), &PublishedStudy::all());

        for word in ["http:", "https:", "src=", "@import", "url(", "<link", "<script"] {
            assert!(!page.contains(word), "{word}");
        }
    }

    #[test]
    fn a_result_without_rows_renders_a_page() {
        let page = page(&ResultFile::new("quick", "?"), &[]);

        assert!(page.contains("<h2>Method</h2>") && page.ends_with("</html>\n"));
    }

    #[test]
    fn html_ids_are_unique() {
        let page = page(&whole(), &PublishedStudy::all());

        let mut ids: Vec<&str> = page.split(" id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let n = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), n);
    }
}
