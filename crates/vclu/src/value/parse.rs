//! Tables as text: stored values, and the replies of other CLUs. Nothing is executed.

use fodo_clu::value::parse_value;
use fodo_data::Scalar;

use super::{LuaValue, is_identifier};
use crate::limit::{TABLE_DEPTH_MAX, TABLE_VALUES_MAX};

/// Which texts a table may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextForm {
    /// Texts have quotes, as in Lua.
    Quoted,
    /// Texts may also have no quotes, and numbers may be keys without brackets, as OpenGr8ton prints them.
    Any,
}

/// Parses a table of constants. `None` if the text is something else, has too many values or is nested too deep.
pub(crate) fn parse_table(text: &str, form: TextForm) -> Option<LuaValue> {
    let mut parser = TableParser { rest: text.as_bytes(), form, n_values_left: TABLE_VALUES_MAX };
    parser.expect(b'{')?;
    let table = parser.table(0)?;
    parser.skip_space();
    parser.rest.is_empty().then_some(table)
}

/// The value of a reply of another CLU: a number, a table, or else a text; `nil` is the only word with another meaning.
pub(crate) fn parse_reply(text: &str) -> LuaValue {
    if let Some(table) = parse_table(text, TextForm::Any) {
        return table;
    }
    match constant(text) {
        Some(value @ (LuaValue::Number(_) | LuaValue::Nil)) => value,
        _ => text.into(),
    }
}

struct TableParser<'a> {
    rest: &'a [u8],
    form: TextForm,
    n_values_left: usize,
}

impl<'a> TableParser<'a> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_ascii_start();
    }

    /// Skips this byte after blanks.
    fn expect(&mut self, byte: u8) -> Option<()> {
        self.skip_space();
        self.rest = self.rest.strip_prefix(&[byte])?;
        Some(())
    }

    /// The entries after `{`, and the `}`.
    fn table(&mut self, depth: usize) -> Option<LuaValue> {
        if depth > TABLE_DEPTH_MAX {
            return None;
        }
        let (mut entries, mut n_positions) = (Vec::new(), 0.0);
        let mut is_empty = self.expect(b'}').is_some();
        while !is_empty {
            let (key, value) = self.entry(depth)?;
            let key = key.unwrap_or_else(|| {
                n_positions += 1.0;
                LuaValue::Number(n_positions)
            });
            if value != LuaValue::Nil {
                entries.push((key, value));
            }
            if self.expect(b'}').is_some() {
                break;
            }
            self.expect(b',')?;
            // Lua permits a comma after the last entry; without quotes an empty text follows.
            is_empty = self.form == TextForm::Quoted && self.expect(b'}').is_some();
        }
        LuaValue::sort_entries(&mut entries);
        Some(LuaValue::Table(entries))
    }

    /// A value, with its key if it has one.
    fn entry(&mut self, depth: usize) -> Option<(Option<LuaValue>, LuaValue)> {
        if self.expect(b'[').is_some() {
            let key = self.value(depth, b",]}")?;
            self.expect(b']')?;
            self.expect(b'=')?;
            return Some((Some(valid_key(key)?), self.value(depth, b",}")?));
        }
        self.skip_space();
        let has_key = self.has_key();
        if !has_key {
            return Some((None, self.value(depth, b",}")?));
        }
        let word = self.word(b"=")?;
        let key = match (self.form, constant(word)) {
            (TextForm::Any, Some(key)) => key,
            (TextForm::Quoted, _) if !is_identifier(word) => return None,
            _ => word.into(),
        };
        self.expect(b'=')?;
        Some((Some(valid_key(key)?), self.value(depth, b",}")?))
    }

    /// Whether a key without brackets comes next.
    fn has_key(&self) -> bool {
        let end = self.rest.iter().find(|byte| b"=,{}\"".contains(byte));
        end == Some(&b'=') && self.rest.first() != Some(&b'=')
    }

    /// A text, a table or a constant. `ends`: what can follow it.
    fn value(&mut self, depth: usize, ends: &[u8]) -> Option<LuaValue> {
        self.n_values_left = self.n_values_left.checked_sub(1)?;
        self.skip_space();
        match self.rest {
            [b'"', after @ ..] => {
                self.rest = after;
                self.quoted().map(LuaValue::from)
            }
            [b'{', after @ ..] => {
                self.rest = after;
                self.table(depth + 1)
            }
            _ => {
                let word = self.word(ends)?;
                constant(word).or_else(|| (self.form == TextForm::Any).then(|| word.into()))
            }
        }
    }

    /// The text up to one of these bytes, without blanks around it.
    fn word(&mut self, ends: &[u8]) -> Option<&'a str> {
        let end = self.rest.iter().position(|byte| ends.contains(byte))?;
        let (word, after) = self.rest.split_at(end);
        self.rest = after;
        std::str::from_utf8(word.trim_ascii()).ok()
    }

    /// The text up to the next quote.
    fn quoted(&mut self) -> Option<String> {
        let mut text = Vec::new();
        loop {
            let (byte, after) = self.rest.split_first()?;
            self.rest = after;
            match byte {
                b'"' => return Some(String::from_utf8_lossy(&text).into_owned()),
                b'\\' => self.escape(&mut text)?,
                byte => text.push(*byte),
            }
        }
    }

    /// What follows a `\`.
    fn escape(&mut self, text: &mut Vec<u8>) -> Option<()> {
        let n_digits = self.rest.iter().take(3).take_while(|byte| byte.is_ascii_digit()).count();
        if n_digits > 0 {
            let (digits, after) = self.rest.split_at(n_digits);
            self.rest = after;
            text.push(std::str::from_utf8(digits).ok()?.parse().ok()?);
            return Some(());
        }
        let (byte, after) = self.rest.split_first()?;
        let escaped = match byte {
            b'"' | b'\\' | b'\'' | b'\n' => *byte,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            // OpenGr8ton escapes only quotes.
            _ if self.form == TextForm::Any => {
                text.push(b'\\');
                return Some(());
            }
            _ => return None,
        };
        self.rest = after;
        text.push(escaped);
        Some(())
    }
}

/// A constant that is not a text.
fn constant(word: &str) -> Option<LuaValue> {
    Some(match word {
        "1/0" => LuaValue::Number(f64::INFINITY),
        "-1/0" => LuaValue::Number(f64::NEG_INFINITY),
        "0/0" | "-(0/0)" => LuaValue::Number(f64::NAN),
        word => match parse_value(word.as_bytes()) {
            None => LuaValue::Nil,
            Some(Scalar::F64(number)) => LuaValue::Number(number),
            Some(Scalar::Bool(is_on)) => LuaValue::Boolean(is_on),
            Some(_) => return None,
        },
    })
}

fn valid_key(key: LuaValue) -> Option<LuaValue> {
    match key {
        LuaValue::Number(number) if number.is_nan() => None,
        LuaValue::Number(_) | LuaValue::Text(_) | LuaValue::Boolean(_) => Some(key),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::NumberFormat;

    fn parsed(text: &str, form: TextForm) -> Option<String> {
        parse_table(text, form).map(|table| table.to_text(NumberFormat::Full))
    }

    #[test]
    fn a_table_is_read_as_it_was_printed() {
        for text in [
            "{}",
            "{27,nil,1,true,\"2023-12-05\",24.09,0.5}",
            r#"{1,{2,{}},"a \"b\" \\ , } \n\001",[100]=-1/0,["end"]=1/0,list={1,2},[true]=false}"#,
            "{{{{{{{{{{{{{{{{{}}}}}}}}}}}}}}}}}",
        ] {
            for form in [TextForm::Quoted, TextForm::Any] {
                assert_eq!(parsed(text, form).as_deref(), Some(text));
            }
        }
        assert_eq!(
            parsed(" { a = 1 , [ \"b\" ] = -1.5e-3, 7, } ", TextForm::Quoted).as_deref(),
            Some("{7,a=1,b=-0.0015}")
        );
    }

    #[test]
    fn the_lists_of_open_gr8ton_are_read() {
        for (text, expected) in [
            ("{22, homeassistant}", r#"{22,"homeassistant"}"#),
            ("{1=1, 2=2, 3=\"x\"}", r#"{1,2,"x"}"#),
            ("{name=hall lamp, path=\"a:\\OM.LUA\", e=mc=2}", r#"{e="mc=2",name="hall lamp",path="a:\\OM.LUA"}"#),
            ("{, x, }", r#"{"","x",""}"#),
            ("{1.0E20, inf, 0d0a1b2c, 007}", r#"{1e20,1/0,"0d0a1b2c","007"}"#),
        ] {
            assert_eq!(parsed(text, TextForm::Any).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_reply_is_a_number_a_table_or_a_text() {
        for (text, value) in [
            ("24.09", 24.09.into()),
            ("-7", LuaValue::Number(-7.0)),
            ("inf", f64::INFINITY.into()),
            ("nil", LuaValue::Nil),
            ("0d0a1b2c", "0d0a1b2c".into()),
            ("true", "true".into()),
            ("", "".into()),
            ("{1,a=2}", LuaValue::Table(vec![(1.0.into(), 1.0.into()), ("a".into(), 2.0.into())])),
            ("{1, {2}", "{1, {2}".into()),
            ("os.exit()", "os.exit()".into()),
        ] {
            assert_eq!(parse_reply(text), value, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_table_of_constants_is_refused() {
        let deep = format!("{}{}", "{".repeat(TABLE_DEPTH_MAX + 2), "}".repeat(TABLE_DEPTH_MAX + 2));
        let long = format!("{{{}}}", "1,".repeat(TABLE_VALUES_MAX + 1));
        for text in
            ["", "5", "{", "{1", "{1}}", "{1} x", "{\"a}", "{\"a\" b}", "{[1=2}", "{[nil]=1}", "{[0/0]=1}", "{[{}]=1}"]
                .into_iter()
                .chain([&*deep, &*long])
        {
            for form in [TextForm::Quoted, TextForm::Any] {
                assert_eq!(parsed(text, form), None, "{text}");
            }
        }
        for text in
            ["{f()}", "{x}", "{1 --[[x]]}", "{'a'}", "{[[a]]}", "{end=1}", "{1=2}", "{,1}", "{1,,2}", "{\"\\q\"}"]
        {
            assert_eq!(parsed(text, TextForm::Quoted), None, "{text}");
        }
    }
}
