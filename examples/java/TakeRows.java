// Takes the updates of many PVs as rows: one call serves thousands of updates. Prints the sum of each PV's values:
//     java --class-path fodo.jar TakeRows.java 10 lab1:voltage lab1:seconds
import io.github.fodopv.Context;
import io.github.fodopv.GroupOptions;
import io.github.fodopv.GroupRows;
import io.github.fodopv.MonitorGroup;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;

public class TakeRows {
    public static void main(String[] arguments) {
        int n = Integer.parseInt(arguments[0]);
        List<String> names = Arrays.asList(arguments).subList(1, arguments.length);
        double[] sums = new double[names.size()];
        try (Context context = new Context();
                MonitorGroup group = context.monitorGroup(names, GroupOptions.defaults())) {
            GroupRows rows = group.rows(1024);
            for (int received = 0; received < n; received += rows.size()) {
                group.take(rows, Duration.ofSeconds(5));
                for (int row = 0; row < rows.size(); row++) {
                    sums[rows.index(row)] += rows.value(row);
                }
            }
            for (int index = 0; index < sums.length; index++) {
                System.out.println(group.name(index) + " " + sums[index]);
            }
            System.out.println(group.counts());
        }
    }
}
