//! The statements of `.dbd` files: menus, record types, device supports. A site's scan rates (`menuScan`) and
//! breakpoint tables are used. Everything else is built in: a `.db` file that describes an unknown record type or
//! device support gets an error.

use std::sync::Arc;

use fodo_data::Scalar;

use crate::breaktable::BreakTable;
use crate::common::{Common, number};
use crate::field::FieldInfo;
use crate::limit::{DELAY_MAX, DELAY_MIN, SCAN_CHOICES_MAX};
use crate::load::error::suggestion;
use crate::load::lexer::{DbToken, SourcePlace};
use crate::load::parse::DbParser;
use crate::load::simulate::INERT_HINT;
use crate::load::{FileLoad, LoadError, record_type};
use crate::record::field_table::has_table;
use crate::scan_menu::{NOT_PERIODIC, ScanMenu, is_of_scan};

/// Minimum number of points of a breakpoint table, as in Base.
const POINTS_MIN: usize = 2;

impl DbParser<'_, '_, '_, '_, '_> {
    /// `menu(menuScan) { choice(menuScanPassive, "Passive") ... }`: all menus but `menuScan` are ignored.
    pub(super) fn menu(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        let (name, name_place) = self.text("the name of a menu")?;
        self.mark(')')?;
        self.mark('{')?;
        let mut choices = Vec::new();
        loop {
            match self.lexer.next(false)? {
                (DbToken::Mark('}'), _) => break,
                (DbToken::Bare(word), _) if word == "choice" => {
                    self.mark('(')?;
                    self.text("the identifier of a choice")?;
                    self.mark(',')?;
                    choices.push(self.text("the text of a choice")?);
                    self.mark(')')?;
                }
                (token, place) => return Err(self.unexpected(&token, place, "choice or '}'")),
            }
        }
        if name == "menuScan" {
            self.scan_menu(choices, name_place);
        }
        Ok(())
    }

    fn scan_menu(&mut self, choices: Vec<(String, SourcePlace)>, name_place: SourcePlace) {
        let (texts, places): (Vec<String>, Vec<SourcePlace>) = choices.into_iter().unzip();
        let menu = ScanMenu::new(texts.into_iter());
        let wrong =
            places.into_iter().zip(menu.rates()).skip(NOT_PERIODIC.len()).filter(|(_, rate)| rate.period.is_none());
        let wrong: Vec<LoadError> = wrong
            .map(|(place, rate)| {
                let message = format!(
                    "\"{}\" is not a scan rate: expected a number and second, minute, hour or Hz, and a period between \
                     {} s and {} s",
                    rate.choice,
                    DELAY_MIN.as_secs_f64(),
                    DELAY_MAX.as_secs()
                );
                self.lexer.error(place, message)
            })
            .collect();
        match self.load.set_scan_menu(menu) {
            Ok(()) => wrong.into_iter().for_each(|error| self.omit_statement(error)),
            Err(message) => self.omit_statement(self.lexer.error(name_place, message)),
        }
    }

    /// `recordtype(ai) { field(VAL, DBF_DOUBLE) { ... } ... }`
    pub(super) fn described_type(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        let (name, name_place) = self.text("a record type")?;
        self.mark(')')?;
        self.mark('{')?;
        let kind = match record_type(&name) {
            _ if self.load.is_description => None,
            Ok(kind) => Some(kind),
            Err(_) if self.load.simulates() || has_table(&name) => None,
            Err(message) => {
                let message = format!("{message}; a record type is code, which a file cannot provide");
                self.omit_statement(self.lexer.error(name_place, message));
                None
            }
        };
        loop {
            match self.lexer.next(false)? {
                (DbToken::Mark('}'), _) => return Ok(()),
                (DbToken::Bare(word), _) if word == "field" => {
                    self.mark('(')?;
                    let (field, place) = self.text("a field name")?;
                    self.mark(',')?;
                    self.text("the type of a field")?;
                    self.mark(')')?;
                    self.skip_block()?;
                    if let Some(kind) = kind.filter(|kind| !is_field(kind.rows, &field)) {
                        let names = kind.rows.iter().chain(Common::ROWS).map(|row| row.name);
                        let guess = suggestion(&field, names);
                        let message = format!("record type {name} is built in and has no field \"{field}\"{guess}");
                        self.omit_statement(self.lexer.error(place, message));
                    }
                }
                (DbToken::Bare(word), _) if word == "include" => drop(self.text("a file name")?),
                (token, place) => return Err(self.unexpected(&token, place, "field or '}'")),
            }
        }
    }

    /// `device(ai, CONSTANT, devAiSoft, "Soft Channel")`
    pub(super) fn device(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        let (kind, kind_place) = self.text("a record type")?;
        self.mark(',')?;
        self.text("the type of an address")?;
        self.mark(',')?;
        self.text("the name of a device support")?;
        self.mark(',')?;
        let (choice, place) = self.text("the choice of DTYP")?;
        self.mark(')')?;
        let error = match record_type(&kind) {
            _ if self.load.is_description || self.load.simulates() => return Ok(()),
            Err(message) => self.lexer.error(kind_place, message),
            Ok(known) if known.devices.contains(&choice.as_str()) => return Ok(()),
            Ok(known) => {
                let all = known.devices.join("\", \"");
                let message = format!(
                    "device support \"{choice}\" is code, which a file cannot provide; {kind} has \"{all}\"{INERT_HINT}"
                );
                self.lexer.error(place, message)
            }
        };
        self.omit_statement(error);
        Ok(())
    }

    /// `driver(x)`, `registrar(x)`, `function(x)`, `link(x, y)`, `variable(x, int)`: names for a linker, which are
    /// ignored.
    pub(super) fn code(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        loop {
            match self.lexer.next(false)? {
                (DbToken::Mark(')'), _) => return Ok(()),
                (DbToken::Mark(',') | DbToken::Bare(_) | DbToken::Quoted(_), _) => {}
                (token, place) => return Err(self.unexpected(&token, place, "a name or ')'")),
            }
        }
    }

    /// `breaktable(typeKdegF) { 0.0 32.0 ... }`: pairs of a raw value and a value in engineering units. The raw values
    /// must all increase or all decrease.
    pub(super) fn breaktable(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        let (name, name_place) = self.text("the name of a breakpoint table")?;
        self.mark(')')?;
        self.mark('{')?;
        let mut numbers: Vec<(f64, SourcePlace)> = Vec::new();
        loop {
            match self.lexer.next(false)? {
                (DbToken::Mark('}'), _) => break,
                (DbToken::Mark(','), _) => {}
                (DbToken::Bare(word) | DbToken::Quoted(word), place) => match word.parse::<f64>() {
                    Ok(number) => numbers.push((number, place)),
                    Err(_) => return Err(self.lexer.error(place, format!("\"{word}\" is not a number"))),
                },
                (token, place) => return Err(self.unexpected(&token, place, "a number or '}'")),
            }
        }
        if !numbers.len().is_multiple_of(2) {
            let message = format!("table {name} ends with a raw value that has no value in units");
            return Err(self.lexer.error(name_place, message));
        }
        if numbers.len() < 2 * POINTS_MIN {
            let message = format!("table {name} has fewer than {POINTS_MIN} points");
            return Err(self.lexer.error(name_place, message));
        }
        let raw: Vec<&(f64, SourcePlace)> = numbers.iter().step_by(2).collect();
        let is_falling = matches!(raw.as_slice(), [(first, _), (second, _), ..] if second < first);
        for pair in raw.windows(2) {
            if let [(before, _), (after, place)] = pair
                && (after == before || (after < before) != is_falling)
            {
                let must = if is_falling { "decrease" } else { "increase" };
                let message = format!("the raw values of table {name} must {must}: {after} follows {before}");
                return Err(self.lexer.error(*place, message));
            }
        }
        let numbers: Vec<f64> = numbers.iter().map(|(number, _)| *number).collect();
        match BreakTable::new(&numbers) {
            Ok(table) => self.load.changes.tables.push((name, Arc::new(table))),
            Err(reason) => return Err(self.lexer.error(name_place, format!("table \"{name}\" is invalid: {reason}"))),
        }
        Ok(())
    }

    /// Skips a block in braces.
    fn skip_block(&mut self) -> Result<(), LoadError> {
        self.mark('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.lexer.next(false)? {
                (DbToken::Mark('{'), _) => depth += 1,
                (DbToken::Mark('}'), _) => depth -= 1,
                (DbToken::End, place) => return Err(self.unexpected(&DbToken::End, place, "'}'")),
                _ => {}
            }
        }
        Ok(())
    }

    fn unexpected(&self, token: &DbToken, place: SourcePlace, expected: &str) -> LoadError {
        self.lexer.error(place, format!("found {}, expected {expected}", token.shown()))
    }
}

impl FileLoad<'_> {
    /// The `menuScan` as loaded so far.
    pub(crate) fn scan_menu(&self) -> &ScanMenu {
        self.changes.scan_menu.as_ref().unwrap_or(&self.loader.scan_menu)
    }

    /// Notes whether a field has a periodic choice: from then on `menuScan` cannot change.
    pub(crate) fn note_scan_choice(&mut self, row: &FieldInfo, choice: &Scalar) {
        let is_periodic = |number: u16| usize::from(number) >= NOT_PERIODIC.len();
        if is_of_scan(row) && matches!(choice, Scalar::Enum(number) if is_periodic(*number)) {
            self.changes.uses_scan_menu = true;
        }
    }

    /// Sets a site's `menuScan`, or returns why it is rejected. The same menu may be repeated, as in Base.
    fn set_scan_menu(&mut self, menu: ScanMenu) -> Result<(), String> {
        let begins = menu.rates().iter().map(|rate| rate.choice.as_str()).take(NOT_PERIODIC.len());
        if !begins.eq(NOT_PERIODIC) {
            return Err(format!("menuScan must begin with the choices \"{}\"", NOT_PERIODIC.join("\", \"")));
        }
        if menu.rates().len() > SCAN_CHOICES_MAX {
            return Err(format!("menuScan has {} choices; the maximum is {SCAN_CHOICES_MAX}", menu.rates().len()));
        }
        let is_same = menu.has_same_choices(self.scan_menu());
        if !is_same && (self.loader.has_scan_menu || self.changes.scan_menu.is_some()) {
            return Err("a menuScan with other choices is already loaded, so this one is ignored".into());
        }
        if !is_same && (self.loader.uses_scan_menu || self.changes.uses_scan_menu) {
            return Err("menuScan must be loaded before records use its choices, so this one is ignored".into());
        }
        self.changes.scan_menu = Some(menu);
        Ok(())
    }
}

/// Whether a record type may describe this field. `TIME` and the private fields of the C structures are valid, although
/// our tables do not have them.
fn is_field(rows: &'static [FieldInfo], name: &str) -> bool {
    const OF_C_ALONE: [&str; 17] = [
        "TIME", "MLOK", "MLIS", "BKLNK", "ASP", "PPN", "PPNR", "SPVT", "RSET", "DSET", "DPVT", "RDES", "LSET", "BKPT",
        "BPTR", "RPVT", "PBRK",
    ];
    number(rows, name).is_some() || OF_C_ALONE.contains(&name)
}
