/** What the programs in Java share: steps, each caught and printed. What a step returns is printed behind ` = `, to be compared. */
final class Steps {
    interface Act {
        Object run() throws Exception;
    }

    private final String prefix;

    Steps(String prefix) {
        this.prefix = prefix;
    }

    void step(String name, Act act) {
        try {
            Object said = act.run();
            System.out.println("ok      " + prefix + ": " + name + (said == null ? "" : " = " + said));
        } catch (Throwable thrown) {
            Throwable cause = thrown;
            while (cause.getCause() != null && cause.getCause() != cause) cause = cause.getCause();
            String message = String.valueOf(cause.getMessage()).replace('\n', ' ');
            System.out.println("FAILED  " + prefix + ": " + name + " (line " + cause.getClass().getSimpleName() + " " + message);
        }
    }

    private Steps() {
        this("");
    }
}
