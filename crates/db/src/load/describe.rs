//! What stands in `.dbd` files: menus, record types, device supports. All of that is built in, so a block that
//! repeats what there is is accepted, and one that wants something else is told what is missing.

use std::sync::Arc;

use crate::breaktable::BreakTable;
use crate::common::{Common, number};
use crate::load::error::suggestion;
use crate::load::lexer::{Place, Token};
use crate::load::parse::Parser;
use crate::load::simulate::INERT_HINT;
use crate::load::{LoadError, record_type};
use crate::menu;

/// The menus that sites add choices to.
const MENUS: &[(&str, &[&str])] = &[
    ("menuAlarmSevr", menu::ALARM_SEVR),
    ("menuAlarmStat", menu::ALARM_STAT),
    ("menuConvert", menu::CONVERT),
    ("menuFtype", menu::FTYPE),
    ("menuIvoa", menu::IVOA),
    ("menuOmsl", menu::OMSL),
    ("menuPini", menu::PINI),
    ("menuPriority", menu::PRIORITY),
    ("menuScan", menu::SCAN),
    ("menuSimm", menu::SIMM),
    ("menuYesNo", menu::YES_NO),
];

/// Points that a breakpoint table needs at least, as in Base.
const POINTS_MIN: usize = 2;

impl Parser<'_, '_, '_, '_, '_> {
    /// `menu(menuScan) { choice(menuScanPassive, "Passive") ... }`
    pub(super) fn menu(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        let (name, _) = self.text("the name of a menu")?;
        self.mark(')')?;
        self.mark('{')?;
        let known = MENUS.iter().find(|(menu, _)| *menu == name).map(|(_, choices)| *choices);
        loop {
            match self.lexer.next(false)? {
                (Token::Mark('}'), _) => return Ok(()),
                (Token::Bare(word), _) if word == "choice" => {
                    self.mark('(')?;
                    self.text("the identifier of a choice")?;
                    self.mark(',')?;
                    let (choice, place) = self.text("the text of a choice")?;
                    self.mark(')')?;
                    if let Some(choices) = known.filter(|choices| !choices.contains(&choice.as_str())) {
                        let message = format!(
                            "menus are built in, and {name} has no choice \"{choice}\"; there are \"{}\"",
                            choices.join("\", \"")
                        );
                        self.lose_other(self.lexer.error(place, message));
                    }
                }
                (token, place) => return Err(self.unexpected(&token, place, "choice or '}'")),
            }
        }
    }

    /// `recordtype(ai) { field(VAL, DBF_DOUBLE) { ... } ... }`
    pub(super) fn described_type(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        let (name, name_place) = self.text("a record type")?;
        self.mark(')')?;
        self.mark('{')?;
        let kind = match record_type(&name) {
            Ok(kind) => Some(kind),
            Err(_) if self.stage.simulates() => None,
            Err(message) => {
                let message = format!("{message}; a record type is code, which no file can bring");
                self.lose_other(self.lexer.error(name_place, message));
                None
            }
        };
        loop {
            match self.lexer.next(false)? {
                (Token::Mark('}'), _) => return Ok(()),
                (Token::Bare(word), _) if word == "field" => {
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
                        self.lose_other(self.lexer.error(place, message));
                    }
                }
                (Token::Bare(word), _) if word == "include" => drop(self.text("a file name")?),
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
            _ if self.stage.simulates() => return Ok(()),
            Err(message) => self.lexer.error(kind_place, message),
            Ok(known) if known.devices.contains(&choice.as_str()) => return Ok(()),
            Ok(known) => {
                let all = known.devices.join("\", \"");
                let message = format!(
                    "device support \"{choice}\" is code, which no file can bring; {kind} has \"{all}\"{INERT_HINT}"
                );
                self.lexer.error(place, message)
            }
        };
        self.lose_other(error);
        Ok(())
    }

    /// `driver(x)`, `registrar(x)`, `function(x)`, `link(x, y)`, `variable(x, int)`: names for a linker, of no meaning
    /// to records.
    pub(super) fn code(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        loop {
            match self.lexer.next(false)? {
                (Token::Mark(')'), _) => return Ok(()),
                (Token::Mark(',') | Token::Bare(_) | Token::Quoted(_), _) => {}
                (token, place) => return Err(self.unexpected(&token, place, "a name or ')'")),
            }
        }
    }

    /// `breaktable(typeKdegF) { 0.0 32.0 ... }`: pairs of a raw value, always rising or always falling, and one in units.
    pub(super) fn breaktable(&mut self) -> Result<(), LoadError> {
        self.mark('(')?;
        let (name, name_place) = self.text("the name of a breakpoint table")?;
        self.mark(')')?;
        self.mark('{')?;
        let mut numbers: Vec<(f64, Place)> = Vec::new();
        loop {
            match self.lexer.next(false)? {
                (Token::Mark('}'), _) => break,
                (Token::Mark(','), _) => {}
                (Token::Bare(word) | Token::Quoted(word), place) => match word.parse::<f64>() {
                    Ok(number) => numbers.push((number, place)),
                    Err(_) => return Err(self.lexer.error(place, format!("\"{word}\" is no number"))),
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
        let raw: Vec<&(f64, Place)> = numbers.iter().step_by(2).collect();
        let is_falling = matches!(raw.as_slice(), [(first, _), (second, _), ..] if second < first);
        for pair in raw.windows(2) {
            if let [(before, _), (after, place)] = pair
                && (after == before || (after < before) != is_falling)
            {
                let must = if is_falling { "fall" } else { "rise" };
                let message = format!("the raw values of table {name} must {must}: {after} comes after {before}");
                return Err(self.lexer.error(*place, message));
            }
        }
        let numbers: Vec<f64> = numbers.iter().map(|(number, _)| *number).collect();
        match BreakTable::new(&numbers) {
            Ok(table) => self.stage.staged.tables.push((name, Arc::new(table))),
            Err(reason) => return Err(self.lexer.error(name_place, format!("the table \"{name}\" has {reason}"))),
        }
        Ok(())
    }

    /// Everything up to the brace that closes the next one.
    fn skip_block(&mut self) -> Result<(), LoadError> {
        self.mark('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.lexer.next(false)? {
                (Token::Mark('{'), _) => depth += 1,
                (Token::Mark('}'), _) => depth -= 1,
                (Token::End, place) => return Err(self.unexpected(&Token::End, place, "'}'")),
                _ => {}
            }
        }
        Ok(())
    }

    fn unexpected(&self, token: &Token, place: Place, expected: &str) -> LoadError {
        self.lexer.error(place, format!("found {}, expected {expected}", token.shown()))
    }
}

/// `TIME` and the private fields of C's structures are in no table of ours, but are no mistake either.
fn is_field(rows: &'static [crate::field::FieldInfo], name: &str) -> bool {
    const OF_C_ALONE: [&str; 17] = [
        "TIME", "MLOK", "MLIS", "BKLNK", "ASP", "PPN", "PPNR", "SPVT", "RSET", "DSET", "DPVT", "RDES", "LSET", "BKPT",
        "BPTR", "RPVT", "PBRK",
    ];
    number(rows, name).is_some() || OF_C_ALONE.contains(&name)
}
