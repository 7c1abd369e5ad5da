package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.source.doctree.BlockTagTree;
import com.sun.source.doctree.DocCommentTree;
import com.sun.source.tree.AnnotationTree;
import com.sun.source.tree.ClassTree;
import com.sun.source.tree.CompilationUnitTree;
import com.sun.source.tree.MethodTree;
import com.sun.source.tree.ModifiersTree;
import com.sun.source.tree.Tree;
import com.sun.source.util.DocTrees;
import com.sun.source.util.JavacTask;
import com.sun.source.util.TreePath;
import com.sun.source.util.TreePathScanner;
import java.io.IOException;
import java.io.StringWriter;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import javax.lang.model.element.Modifier;
import javax.tools.DocumentationTool;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.StandardJavaFileManager;
import javax.tools.ToolProvider;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The written contract: what each public method says about its cost and its failures. */
class ContractTest {
    /** The block tags of every public method and constructor, with the words that the Javadoc shows for them. */
    private static final List<String> TAGS =
            List.of("roundTrips:Round trips", "thread:Thread", "blocks:Blocks", "bounds:Bounds", "fails:Fails");

    private static final Path SOURCES = Path.of("src", "main", "java");

    private static List<Path> sources() throws IOException {
        try (Stream<Path> files = Files.walk(SOURCES)) {
            return files.filter(file -> file.toString().endsWith(".java")).sorted().toList();
        }
    }

    /** The public methods in these sources that lack a tag or have an empty one. */
    private static List<String> offences(Iterable<? extends JavaFileObject> sources) throws IOException {
        JavacTask task = (JavacTask) ToolProvider.getSystemJavaCompiler()
                .getTask(new StringWriter(), null, problem -> { }, List.of("-proc:none"), null, sources);
        DocTrees docs = DocTrees.instance(task);
        List<String> offences = new ArrayList<>();
        for (CompilationUnitTree unit : task.parse()) {
            new Scanner(docs, offences).scan(unit, null);
        }
        return offences;
    }

    private static List<String> offencesIn(String source) throws IOException {
        return offences(List.of(new SimpleJavaFileObject(URI.create("string:///A.java"), JavaFileObject.Kind.SOURCE) {
            @Override
            public CharSequence getCharContent(boolean ignoreEncodingErrors) {
                return source;
            }
        }));
    }

    @Test
    void everyPublicMethodStatesItsContract() throws IOException {
        try (StandardJavaFileManager files =
                ToolProvider.getSystemJavaCompiler().getStandardFileManager(null, null, null)) {
            List<String> offences = offences(files.getJavaFileObjectsFromPaths(sources()));

            assertEquals("", String.join("\n", offences));
        }
    }

    @Test
    void aMethodWithoutATagIsFound() throws IOException {
        String complete = "@roundTrips none\n@thread any\n@blocks never\n@bounds none\n@fails never\n";
        String method = "public class A { /** Text.\n%s*/ public void f() { } }";

        assertEquals(List.of(), offencesIn(String.format(method, complete)));
        assertEquals(
                List.of("A.f: no @thread, @fails"),
                offencesIn(String.format(method, "@roundTrips 1\n@blocks no\n@bounds 1\n")));
        assertEquals(
                List.of("A.f: no @bounds"),
                offencesIn(String.format(method, complete.replace("@bounds none", "@bounds"))));
        assertEquals(
                List.of("A.f: no documentation", "B.<init>: no documentation"),
                offencesIn("public interface A { void f(); class B { public B() { } } }"));
    }

    @Test
    void whatIsNotPublicOrOverridesIsExempt() throws IOException {
        assertEquals(List.of(), offencesIn("""
                public class A {
                    void f() { }
                    private A() { }
                    @Override public String toString() { return ""; }
                }
                class Hidden { public void f() { } }
                """));
        assertEquals(List.of(), offencesIn("public record A(int b) { } "));
        assertEquals(List.of(), offencesIn("public enum A { B, C }"));
    }

    @Test
    void javadocHasNoWarnings(@TempDir Path folder) throws IOException {
        DocumentationTool javadoc = ToolProvider.getSystemDocumentationTool();
        List<String> options = new ArrayList<>(
                List.of("-d", folder.toString(), "-Xdoclint:all,-missing", "-Werror", "-quiet", "-encoding", "UTF-8"));
        TAGS.forEach(tag -> options.addAll(List.of("-tag", tag.replace(":", ":cm:") + ":")));
        StringWriter printed = new StringWriter();
        try (StandardJavaFileManager files = javadoc.getStandardFileManager(null, null, null)) {
            Iterable<? extends JavaFileObject> all = files.getJavaFileObjectsFromPaths(sources());
            boolean isComplete = javadoc.getTask(printed, files, null, null, options, all).call();

            assertTrue(isComplete, printed::toString);
            assertEquals("", printed.toString());
        }
    }

    /** Visits the public methods of public types. */
    private static final class Scanner extends TreePathScanner<Void, Void> {
        private final DocTrees docs;
        private final List<String> offences;

        private Scanner(DocTrees docs, List<String> offences) {
            this.docs = docs;
            this.offences = offences;
        }

        @Override
        public Void visitClass(ClassTree type, Void nothing) {
            boolean isNested = getCurrentPath().getParentPath().getLeaf() instanceof ClassTree;
            if (isPublic(type.getModifiers()) || (isNested && isInInterface())) {
                return super.visitClass(type, nothing);
            }
            return null;
        }

        @Override
        public Void visitMethod(MethodTree method, Void nothing) {
            boolean isPublic = isPublic(method.getModifiers()) || isInInterface();
            boolean isPrivate = method.getModifiers().getFlags().contains(Modifier.PRIVATE);
            // The compiler's own constructors have no position in the source.
            boolean isWritten = docs.getSourcePositions()
                    .getEndPosition(getCurrentPath().getCompilationUnit(), method) >= 0;
            if (isPublic && !isPrivate && isWritten && !isOverride(method)) {
                check(method);
            }
            return null;
        }

        private void check(MethodTree method) {
            String owner = ((ClassTree) getCurrentPath().getParentPath().getLeaf()).getSimpleName().toString();
            String name = owner + "." + method.getName();
            TreePath path = getCurrentPath();
            DocCommentTree comment = docs.getDocCommentTree(path);
            if (comment == null) {
                offences.add(name + ": no documentation");
                return;
            }
            Set<String> present = new TreeSet<>();
            comment.getBlockTags().stream()
                    .filter(BlockTagTree.class::isInstance)
                    .map(BlockTagTree.class::cast)
                    .filter(tag -> tag.toString().strip().contains(" "))
                    .forEach(tag -> present.add(tag.getTagName()));
            List<String> absent = TAGS.stream()
                    .map(tag -> tag.substring(0, tag.indexOf(':')))
                    .filter(tag -> !present.contains(tag))
                    .map(tag -> "@" + tag)
                    .toList();
            if (!absent.isEmpty()) {
                offences.add(name + ": no " + String.join(", ", absent));
            }
        }

        private boolean isInInterface() {
            return getCurrentPath().getParentPath().getLeaf().getKind() == Tree.Kind.INTERFACE;
        }

        private static boolean isPublic(ModifiersTree modifiers) {
            return modifiers.getFlags().contains(Modifier.PUBLIC);
        }

        private static boolean isOverride(MethodTree method) {
            return method.getModifiers().getAnnotations().stream()
                    .map(AnnotationTree::getAnnotationType)
                    .anyMatch(type -> type.toString().equals("Override"));
        }
    }
}
