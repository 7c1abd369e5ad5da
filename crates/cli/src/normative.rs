//! Structures of normative types for people: tables as columns, images as statistics.

use std::fmt::Write as _;

use fodo_data::{
    Array, ImageAttribute, ImageContent, ImageDimension, Kind, NormativeType, Scalar, TableContent, Value,
};
use fodo_net::{NodeValue, Reading, Structure};

use crate::limit;
use crate::show::{DisplayOptions, escape_control};
use crate::structure::json;

/// How the fields of a structure are shown instead of their elements.
#[derive(Debug, Default)]
pub struct NormativeTexts<'a> {
    /// By node.
    fields: Vec<(usize, FieldText<'a>)>,
    /// What its normative type forbids.
    pub fault: Option<String>,
}

/// How a field is shown.
#[derive(Debug)]
pub enum FieldText<'a> {
    /// Another field shows it.
    Hidden,
    /// As one line.
    Line(String),
    /// As one line, and a table below it.
    Table(String, TableRows<'a>),
}

/// Columns with their heads.
#[derive(Debug)]
pub struct TableRows<'a>(Vec<(String, CellColumn<'a>)>);

#[derive(Debug)]
enum CellColumn<'a> {
    Elements(&'a Array),
    Texts(Vec<String>),
}

/// The fields of a structure that are shown otherwise, because its type is a normative type.
pub fn texts<'a>(structure: &'a Structure, look: &DisplayOptions) -> NormativeTexts<'a> {
    let Some(of) = NormativeType::from_id(&structure.kind().id().to_str()) else { return NormativeTexts::default() };
    let fields = match of {
        NormativeType::Table => table(structure),
        NormativeType::NameValue => name_value(structure),
        NormativeType::NdArray => image(structure, look),
        _ => None,
    };
    let bit = |name: &str| structure.kind().node(name);
    NormativeTexts {
        fields: fields.into_iter().flatten().filter_map(|(name, text)| Some((bit(name)?, text))).collect(),
        fault: of.check_values(structure).err().map(|fault| fault.to_string()),
    }
}

impl<'a> NormativeTexts<'a> {
    /// The text of a node; `None` if it is shown like that of any structure.
    pub fn of(&self, bit: usize) -> Option<&FieldText<'a>> {
        self.fields.iter().find(|(node, _)| *node == bit).map(|(_, text)| text)
    }
}

/// `n` things, of which `noun` is one.
fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

type FieldTexts<'a> = Option<Vec<(&'static str, FieldText<'a>)>>;

fn table(structure: &Structure) -> FieldTexts<'_> {
    let table = TableContent::of(structure)?;
    if table.columns.is_empty() {
        return Some(vec![("value", FieldText::Line("no columns".to_owned()))]);
    }
    let size = format!("{}, {}", count(table.columns.len(), "column"), count(table.n_rows(), "row"));
    let columns = table.columns.iter().map(|column| (escape_control(&column.label.to_str()), column.elements));
    let rows = columns.map(|(head, elements)| (head, CellColumn::Elements(elements))).collect();
    let mut texts = vec![("value", FieldText::Table(size, TableRows(rows)))];
    if table.has_labels {
        texts.push(("labels", FieldText::Hidden));
    }
    Some(texts)
}

fn name_value(structure: &Structure) -> FieldTexts<'_> {
    let column = |path: &str| match structure.get(path)? {
        Value::Array(elements) => Some((path.to_owned(), CellColumn::Elements(elements))),
        Value::Scalar(_) => None,
    };
    let rows = TableRows(vec![column("name")?, column("value")?]);
    let size = count(rows.n_rows(), "value");
    Some(vec![("name", FieldText::Hidden), ("value", FieldText::Table(size, rows))])
}

impl TableRows<'_> {
    fn n_rows(&self) -> usize {
        self.0.iter().map(|(_, column)| column.len()).max().unwrap_or(0)
    }

    /// Writes the heads and the rows, at a terminal only the first ones.
    pub fn write(&self, depth: usize, look: &DisplayOptions, out: &mut String) {
        let n_rows = self.n_rows();
        let n_shown = if look.is_terminal && !look.full { n_rows.min(limit::ROWS_AT_TERMINAL) } else { n_rows };
        let width = |(head, column): &(String, CellColumn<'_>)| {
            let cells = (0..n_shown).map(|row| column.cell(row, look).chars().count());
            cells.chain([head.chars().count()]).max().unwrap_or(0).min(limit::COLUMN_CHARS)
        };
        let widths: Vec<usize> = self.0.iter().map(width).collect();
        let mut line = String::new();
        let mut write_line = |cell_of: &dyn Fn(&(String, CellColumn<'_>)) -> String| {
            line.clear();
            for (index, (column, &width)) in self.0.iter().zip(&widths).enumerate() {
                let separator = if index == 0 { "" } else { "  " };
                let cell = cell_of(column);
                let _ = match column.1.is_number() {
                    true => write!(line, "{separator}{cell:>width$}"),
                    false => write!(line, "{separator}{cell:<width$}"),
                };
            }
            let _ = writeln!(out, "{:1$}{line}", "", depth * 4, line = line.trim_end());
        };
        write_line(&|(head, _)| head.clone());
        for row in 0..n_shown {
            write_line(&|(_, column)| column.cell(row, look));
        }
        if n_shown < n_rows {
            let n_more = count(n_rows - n_shown, "more row");
            let _ = writeln!(out, "{:1$}... {n_more} (--full shows all)", "", depth * 4);
        }
    }
}

impl CellColumn<'_> {
    fn len(&self) -> usize {
        match self {
            CellColumn::Elements(elements) => elements.len(),
            CellColumn::Texts(texts) => texts.len(),
        }
    }

    /// Whether the cells end at the same column of the screen, so that their digits do.
    fn is_number(&self) -> bool {
        match self {
            CellColumn::Elements(elements) => !matches!(elements.kind(), Kind::Text | Kind::Bool),
            CellColumn::Texts(_) => false,
        }
    }

    /// A cell; empty past the end of the column.
    fn cell(&self, row: usize, look: &DisplayOptions) -> String {
        match self {
            CellColumn::Elements(elements) => {
                elements.scalar(row).map_or(String::new(), |element| look.element(&element, None))
            }
            CellColumn::Texts(texts) => texts.get(row).cloned().unwrap_or_default(),
        }
    }
}

fn image<'a>(structure: &'a Structure, look: &DisplayOptions) -> FieldTexts<'a> {
    let image = ImageContent::of(structure)?;
    let mut texts = vec![("value", FieldText::Line(elements_text(&image, look)))];
    let sizes: Vec<String> = image.dimensions.iter().map(dimension_text).collect();
    let sizes = if sizes.is_empty() { "none".to_owned() } else { sizes.join(" x ") };
    texts.push(("dimension", FieldText::Line(sizes)));
    let parameters = structure.kind().node("codec.parameters").and_then(|bit| structure.node(bit));
    if image.codec.is_empty() && matches!(parameters, None | Some(NodeValue::Any(None))) {
        texts.push(("codec", FieldText::Line("none".to_owned())));
    }
    texts.push(("attribute", attributes(&image.attributes, look)));
    Some(texts)
}

/// The elements of an image in one line: `307200 elements of ubyte, min 0, max 255, mean 101.333`.
fn elements_text(image: &ImageContent<'_>, look: &DisplayOptions) -> String {
    let Some(elements) = image.elements else { return "none".to_owned() };
    let mut text = format!("{} of {}", count(elements.len(), "element"), elements.kind().pva_name());
    if !image.codec.is_empty() {
        return format!("{text}, compressed with {}", escape_control(&image.codec.to_str()));
    }
    if let Some(statistics) = statistics(elements) {
        let [min, max, mean] = [statistics.min, statistics.max, significant(statistics.mean)];
        let [min, max, mean] = [min, max, mean].map(|number| look.element(&number, None));
        let _ = write!(text, ", min {min}, max {max}, mean {mean}");
        if statistics.n_nan > 0 {
            let _ = write!(text, ", and {} nan", statistics.n_nan);
        }
    }
    text
}

/// A number with six significant digits.
fn significant(number: f64) -> Scalar {
    Scalar::F64(format!("{number:.5e}").parse().unwrap_or(number))
}

/// `640`, or `640 (of 1280 from 100, binning 2, reversed)`.
fn dimension_text(dimension: &ImageDimension) -> String {
    let ImageDimension { size, offset, full_size, binning, is_reversed } = *dimension;
    if dimension.is_whole() {
        return size.to_string();
    }
    let mut parts = vec![format!("of {full_size} from {offset}")];
    if binning != 1 {
        parts.push(format!("binning {binning}"));
    }
    if is_reversed {
        parts.push("reversed".to_owned());
    }
    format!("{size} ({})", parts.join(", "))
}

/// The values of the attribute `ColorMode` of areaDetector: its NDColorMode_t.
const COLOR_MODES: [&str; 8] = ["Mono", "Bayer", "RGB1", "RGB2", "RGB3", "YUV444", "YUV422", "YUV411"];

fn attributes<'a>(attributes: &[ImageAttribute<'_>], look: &DisplayOptions) -> FieldText<'a> {
    if attributes.is_empty() {
        return FieldText::Line("none".to_owned());
    }
    let texts = |text: &dyn Fn(&ImageAttribute<'_>) -> String| attributes.iter().map(text).collect::<Vec<_>>();
    let mut columns = vec![
        ("name", texts(&|attribute| escape_control(&attribute.name.to_str()))),
        ("value", texts(&|attribute| attribute_text(attribute, look))),
        ("descriptor", texts(&|attribute| escape_control(&attribute.descriptor.to_str()))),
        ("source", texts(&|attribute| escape_control(&attribute.source.to_str()))),
    ];
    columns.retain(|(head, cells)| matches!(*head, "name" | "value") || cells.iter().any(|cell| !cell.is_empty()));
    let rows = columns.into_iter().map(|(head, cells)| (head.to_owned(), CellColumn::Texts(cells))).collect();
    FieldText::Table(count(attributes.len(), "attribute"), TableRows(rows))
}

fn attribute_text(attribute: &ImageAttribute<'_>, look: &DisplayOptions) -> String {
    let Some(value) = attribute.value else { return "none".to_owned() };
    let Some(single) = value.value(0) else { return json(value).to_string() };
    let text = look.value(&Reading::bare(single.clone())).to_string();
    let number = single.to_f64().ok().filter(|_| attribute.name.as_bytes() == b"ColorMode");
    match number.and_then(|number| COLOR_MODES.iter().zip(0_i32..).find(|(_, mode)| f64::from(*mode) == number)) {
        Some((mode, _)) => format!("{text} ({mode})"),
        None => text,
    }
}

/// What the numbers of an image have in common.
#[derive(Debug, PartialEq)]
struct ImageStatistics {
    min: Scalar,
    max: Scalar,
    mean: f64,
    /// The numbers that are NaN, which the others ignore.
    n_nan: usize,
}

/// `None` if there are no numbers.
fn statistics(elements: &Array) -> Option<ImageStatistics> {
    match elements {
        Array::Bool(elements) => of_integers(elements, Scalar::Bool),
        Array::I8(elements) => of_integers(elements, Scalar::I8),
        Array::U8(elements) => of_integers(elements, Scalar::U8),
        Array::I16(elements) => of_integers(elements, Scalar::I16),
        Array::U16(elements) | Array::Enum(elements) => of_integers(elements, Scalar::U16),
        Array::I32(elements) => of_integers(elements, Scalar::I32),
        Array::U32(elements) => of_integers(elements, Scalar::U32),
        Array::I64(elements) => of_integers(elements, Scalar::I64),
        Array::U64(elements) => of_integers(elements, Scalar::U64),
        Array::F32(elements) => of_floats(elements, |number| Scalar::F32(number as f32)),
        Array::F64(elements) => of_floats(elements, Scalar::F64),
        Array::Text(_) => None,
    }
}

fn of_integers<T: Copy + Ord + Into<i128>>(elements: &[T], scalar: fn(T) -> Scalar) -> Option<ImageStatistics> {
    let (min, max) = (elements.iter().min()?, elements.iter().max()?);
    let sum: i128 = elements.iter().map(|&element| element.into()).sum();
    let mean = sum as f64 / elements.len() as f64;
    Some(ImageStatistics { min: scalar(*min), max: scalar(*max), mean, n_nan: 0 })
}

fn of_floats<T: Copy + Into<f64>>(elements: &[T], scalar: fn(f64) -> Scalar) -> Option<ImageStatistics> {
    let numbers = || elements.iter().map(|&element| element.into()).filter(|number: &f64| !number.is_nan());
    let n_numbers = numbers().count();
    let mean = numbers().sum::<f64>() / n_numbers as f64;
    let (min, max) = (numbers().reduce(f64::min)?, numbers().reduce(f64::max)?);
    Some(ImageStatistics { min: scalar(min), max: scalar(max), mean, n_nan: elements.len() - n_numbers })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fodo_net::{NodeKind, StructureType, Text, UnionValue};

    use super::*;
    use crate::local_time::Clock;
    use crate::structure::tree;

    fn look() -> DisplayOptions {
        DisplayOptions::plain(Clock::utc())
    }

    fn structure(kind: StructureType, values: &[(&str, Value)]) -> Structure {
        let mut structure = Structure::new(Arc::new(kind));
        values.iter().for_each(|(path, value)| structure.set(path, value.clone()).unwrap());
        structure
    }

    fn texts_of(texts: &[&str]) -> Value {
        texts.iter().map(|&text| Text::from(text)).collect::<Vec<_>>().into()
    }

    fn orbit(labels: &[&str], names: &[&str], positions: &[f64]) -> Structure {
        let kind = NormativeType::Table.builder().column("name", Kind::Text).column("x", Kind::F64).with("descriptor");
        let values = [
            ("labels", texts_of(labels)),
            ("value.name", texts_of(names)),
            ("value.x", positions.to_vec().into()),
            ("descriptor", "one turn".into()),
        ];
        structure(kind.finish().unwrap(), &values)
    }

    #[test]
    fn a_table_is_shown_as_columns_under_its_labels() {
        let shown = tree(&orbit(&["BPM", "position"], &["left", "r\n"], &[-1.25, 10.0]), &look());

        let lines = [
            "    value       2 columns, 2 rows",
            "        BPM   position",
            "        left     -1.25",
            "        r\\n         10",
            "    descriptor  one turn",
        ];
        assert_eq!(shown, lines.join("\n") + "\n");
    }

    #[test]
    fn a_table_without_a_label_for_each_column_has_the_names_of_its_fields_and_the_fault_is_shown() {
        let shown = tree(&orbit(&["BPM"], &["left"], &[]), &look());

        let lines = [
            "    labels      [\"BPM\"]",
            "    value       2 columns, 1 row",
            "        name  x",
            "        left",
            "    descriptor  one turn",
            "    --- NTTable: the field value.x has length 0: expected 1, the length of value.name",
        ];
        assert_eq!(shown, lines.join("\n") + "\n");
    }

    #[test]
    fn a_terminal_shows_the_first_rows_of_a_table_and_the_flag_for_all_of_them() {
        let long = orbit(&["BPM", "x"], &["b"; 1000], &vec![0.5; 1000]);
        let terminal = DisplayOptions { is_terminal: true, ..look() };

        let shown = tree(&long, &terminal);

        assert_eq!(shown.lines().count(), 1 + 1 + limit::ROWS_AT_TERMINAL + 1 + 1);
        assert!(shown.contains("\n        ... 984 more rows (--full shows all)\n"), "{shown}");
        assert_eq!(tree(&long, &DisplayOptions { full: true, ..terminal }).lines().count(), 1 + 1 + 1000 + 1);
        assert_eq!(tree(&long, &look()).lines().count(), 1 + 1 + 1000 + 1);
    }

    #[test]
    fn an_empty_table_shows_its_heads_or_that_it_has_no_columns() {
        let none = structure(NormativeType::Table.builder().finish().unwrap(), &[]);

        assert_eq!(tree(&none, &look()), "    labels  []\n    value   no columns\n");
        assert!(
            tree(&orbit(&["a", "b"], &[], &[]), &look())
                .starts_with("    value       2 columns, 0 rows\n        a  b\n")
        );
    }

    #[test]
    fn values_with_names_are_shown_as_two_columns() {
        let kind = NormativeType::NameValue.builder().array("value", Kind::I32).finish().unwrap();
        let marks = structure(kind, &[("name", texts_of(&["optics", "vacuum"])), ("value", vec![1, 20].into())]);

        let lines = ["    value  2 values", "        name    value", "        optics      1", "        vacuum     20"];
        assert_eq!(tree(&marks, &look()), lines.join("\n") + "\n");
    }

    fn camera(elements: Option<Value>, sizes: &[i32]) -> Structure {
        let mut camera = structure(NormativeType::NdArray.builder().finish().unwrap(), &[]);
        let node = |camera: &Structure, name: &str| camera.kind().node(name).unwrap();
        let element = |camera: &Structure, name: &str| match &camera.kind().nodes()[node(camera, name)].kind {
            NodeKind::StructureArray(element) => Structure::new(element.clone()),
            _ => panic!("{name} is an array of structures"),
        };
        if let Some(elements) = elements {
            let selector = if elements.kind() == Kind::U8 { 5 } else { 10 };
            let union = UnionValue { selector, value: Structure::single(elements) };
            camera.set_node(node(&camera, "value"), NodeValue::Union(Some(Box::new(union)))).unwrap();
        }
        let dimension = |size: &i32| {
            let mut dimension = element(&camera, "dimension");
            dimension.set("size", *size).unwrap();
            dimension.set("fullSize", *size).unwrap();
            dimension.set("binning", 1).unwrap();
            Some(dimension)
        };
        let dimensions = sizes.iter().map(dimension).collect();
        let mut attribute = element(&camera, "attribute");
        attribute.set("name", "ColorMode").unwrap();
        let bit = attribute.kind().node("value").unwrap();
        attribute.set_node(bit, NodeValue::Any(Some(Box::new(Structure::single(2.into()))))).unwrap();
        attribute.set("descriptor", "Color mode").unwrap();
        let attributes = vec![Some(attribute)];
        camera.set_node(node(&camera, "dimension"), NodeValue::Structures(Arc::new(dimensions))).unwrap();
        camera.set_node(node(&camera, "attribute"), NodeValue::Structures(Arc::new(attributes))).unwrap();
        camera
    }

    #[test]
    fn an_image_is_shown_as_its_shape_statistics_and_attributes() {
        let mut camera = camera(Some(vec![0_u8, 1, 2, 3, 4, 255].into()), &[3, 2]);
        camera.set("compressedSize", 6).unwrap();
        camera.set("uncompressedSize", 6).unwrap();

        let shown = tree(&camera, &look());

        let lines = [
            "    value             6 elements of ubyte, min 0, max 255, mean 44.1667",
            "    codec             none",
            "    compressedSize    6",
            "    uncompressedSize  6",
            "    dimension         3 x 2",
            "    uniqueId          0",
            "    dataTimeStamp     never",
            "    attribute         1 attribute",
            "        name       value     descriptor",
            "        ColorMode  2 (RGB1)  Color mode",
        ];
        assert_eq!(shown, lines.join("\n") + "\n");
    }

    #[test]
    fn an_image_without_elements_or_with_a_codec_has_no_statistics() {
        let empty = tree(&camera(None, &[]), &look());
        let mut compressed = camera(Some(vec![255_u8, 216].into()), &[3, 2]);
        compressed.set("codec.name", "jpeg").unwrap();
        let compressed = tree(&compressed, &look());

        assert!(empty.contains("value             none\n") && empty.contains("dimension         none\n"), "{empty}");
        assert!(compressed.contains("2 elements of ubyte, compressed with jpeg\n"), "{compressed}");
        assert!(compressed.contains("\n    codec           \n        name        jpeg\n"), "{compressed}");
        assert!(!compressed.contains("---"), "{compressed}");
    }

    #[test]
    fn an_image_with_fewer_elements_than_its_dimensions_is_reported() {
        let shown = tree(&camera(Some(vec![0.5; 5].into()), &[3, 2]), &look());

        let fault = "NTNDArray: the field value has length 5: expected at least 6, the product of the dimensions";
        assert!(shown.ends_with(&format!("    --- {fault}\n")), "{shown}");
    }

    #[test]
    fn statistics_are_exact_for_integers_and_ignore_nan() {
        let of = |value: Value| statistics(&value.into_array());
        let expected = |min: Scalar, max: Scalar, mean: f64, n_nan| Some(ImageStatistics { min, max, mean, n_nan });

        let big = u64::MAX;
        assert_eq!(of(vec![big - 1, big].into()), expected(Scalar::U64(big - 1), Scalar::U64(big), big as f64, 0));
        assert_eq!(of(vec![-3_i16, 4].into()), expected(Scalar::I16(-3), Scalar::I16(4), 0.5, 0));
        assert_eq!(of(vec![true, false].into()), expected(Scalar::Bool(false), Scalar::Bool(true), 0.5, 0));
        let floats = vec![f64::NAN, 2.0, -1.0];
        assert_eq!(of(floats.into()), expected(Scalar::F64(-1.0), Scalar::F64(2.0), 0.5, 1));
        assert_eq!(of(vec![0.1_f32].into()).map(|it| it.min), Some(Scalar::F32(0.1)));
        assert_eq!(of(vec![f64::NAN].into()), None);
        assert_eq!(of(Value::from(Vec::<u8>::new())), None);
        let nan = camera(Some(vec![f64::NAN, 1e-9, 2e-9].into()), &[3]);
        assert!(tree(&nan, &look()).contains("min 1e-9, max 2e-9, mean 1.5e-9, and 1 nan\n"));
    }

    #[test]
    fn a_dimension_that_is_a_part_of_the_detector_shows_which_one() {
        let part = ImageDimension { size: 640, offset: 100, full_size: 2560, binning: 2, is_reversed: true };

        assert_eq!(dimension_text(&part), "640 (of 2560 from 100, binning 2, reversed)");
        let part = ImageDimension { binning: 1, is_reversed: false, ..part };
        assert_eq!(dimension_text(&part), "640 (of 2560 from 100)");
    }
}
