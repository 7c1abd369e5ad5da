package io.github.fodopv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class ScratchTest {
    private final FakeNative fake = new FakeNative();
    private final Scratch.Pool pool = new Scratch.Pool();

    @Test
    void aBufferIsUsedAgain() {
        Scratch first = pool.take(fake.natives);
        Scratch second = pool.take(fake.natives);
        assertNotSame(first, second);
        first.close();

        assertSame(first, pool.take(fake.natives));
    }

    @Test
    void thePoolKeepsAtMost16() {
        List<Scratch> taken = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            taken.add(pool.take(fake.natives));
        }
        taken.forEach(Scratch::close);

        List<Scratch> again = new ArrayList<>();
        for (int i = 0; i < 40; i++) {
            again.add(pool.take(fake.natives));
        }
        assertEquals(16, again.stream().filter(taken::contains).count());
    }

    @Test
    void aBufferGrowsWithItsInputAndALargeOneIsNotKept() {
        Scratch scratch = pool.take(fake.natives);
        long address = scratch.address();
        scratch.i32(1234).text("x".repeat(Scratch.BYTES));

        assertEquals(8 + Scratch.BYTES, scratch.written());
        assertNotEquals(address, scratch.address());
        assertEquals(1234, scratch.reply(4).getInt());
        scratch.close();
        assertNotSame(scratch, pool.take(fake.natives));
    }

    @Test
    void aReplyThatIsLongerIsReadFromItsBlockWhichIsReleased() {
        Scratch scratch = pool.take(fake.natives);
        long block = fake.natives.blockCreate(20_000);
        fake.natives.view(block, 20_000).put(19_999, (byte) 9);
        scratch.i64(block);

        assertEquals(9, scratch.reply(-1).get(19_999));
        assertEquals(1, fake.blocks());
        scratch.close();
        assertEquals(0, fake.blocks());
    }

    @Test
    void aTableOfSinksUsesNoTokenTwice() {
        SinkTable table = new SinkTable();
        Sink once = sink(true);
        Sink often = sink(false);
        long first = table.add(once);
        long second = table.add(often);

        assertSame(once, table.take(first));
        assertSame(null, table.take(first));
        long third = table.add(once);
        assertSame(null, table.take(first));
        assertSame(often, table.take(second));
        assertSame(often, table.take(second));
        table.remove(second);
        assertSame(null, table.take(second));
        assertEquals(List.of(once), table.close());
        assertSame(once, table.take(third));
        assertThrows(ClosedException.class, () -> table.add(once));
    }

    private static Sink sink(boolean isOnce) {
        return new Sink() {
            @Override
            public boolean isOnce() {
                return isOnce;
            }

            @Override
            public void accept(java.nio.ByteBuffer in) {
            }

            @Override
            public void closed() {
            }
        };
    }
}
