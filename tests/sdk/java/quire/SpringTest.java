package quire;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.azure.cosmos.models.PartitionKey;
import com.azure.spring.data.cosmos.core.mapping.Container;
import com.azure.spring.data.cosmos.exception.CosmosAccessException;
import com.azure.spring.data.cosmos.repository.CosmosRepository;
import com.azure.spring.data.cosmos.repository.Query;
import com.azure.spring.data.cosmos.repository.config.EnableCosmosRepositories;
import java.util.List;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.Test;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.Version;
import org.springframework.data.domain.Sort;
import org.springframework.data.repository.query.Param;
import org.springframework.stereotype.Repository;

/** Spring Data on the settings of docs/migrating.md. */
class SpringTest {
    @Container(containerName = "spring-people")
    public static class Person {
        @Id
        public String id;
        @com.azure.spring.data.cosmos.core.mapping.PartitionKey
        public String city;
        public int age;
        @Version
        public String _etag;

        public Person() {}

        Person(String id, String city, int age) {
            this.id = id;
            this.city = city;
            this.age = age;
        }
    }

    @Repository
    public interface People extends CosmosRepository<Person, String> {
        List<Person> findByCityAndAgeGreaterThan(String city, int age);

        long countByAgeLessThan(int age);

        @Query("SELECT VALUE SUM(c.age) FROM c WHERE c.city = @city")
        List<Double> ages(@Param("city") String city);
    }

    @Configuration
    @EnableAutoConfiguration
    @EnableCosmosRepositories(basePackageClasses = SpringTest.class, considerNestedRepositories = true)
    public static class Application {}

    private static ConfigurableApplicationContext start(String mode) {
        String prefix = "spring.cloud.azure.cosmos.";
        return new SpringApplicationBuilder(Application.class).properties(
            prefix + "endpoint=" + Server.ENDPOINT, prefix + "key=" + Server.KEY, prefix + "database=" + Server.database().getId(),
            prefix + "connection-mode=" + mode, "spring.main.banner-mode=off").run();
    }

    @Test
    void repositories() {
        try (ConfigurableApplicationContext spring = start("gateway")) {
            People people = spring.getBean(People.class);
            people.saveAll(List.of(new Person("ada", "London", 36), new Person("grace", "New York", 85), new Person("alan", "London", 41)));
            assertEquals(36, people.findById("ada", new PartitionKey("London")).orElseThrow().age);
            assertEquals("alan", people.findByCityAndAgeGreaterThan("London", 40).get(0).id);
            assertEquals(2, people.countByAgeLessThan(50));
            assertEquals(List.of(77.0), people.ages("London"));
            var sorted = people.findAll(Sort.by(Sort.Direction.DESC, "age")).spliterator();
            assertEquals(List.of("grace", "alan", "ada"), StreamSupport.stream(sorted, false).map(person -> person.id).toList());

            Person ada = people.findById("ada", new PartitionKey("London")).orElseThrow();
            ada.age = 37;
            people.save(ada);
            ada._etag = "\"00000000-0000-0000-0000-000000000000\"";
            assertThrows(CosmosAccessException.class, () -> people.save(ada), "another has changed it");
            people.deleteById("ada", new PartitionKey("London"));
            assertEquals(2, people.count());
        }
    }

    /** The program does not start in direct mode, the default of Spring, and the last cause says why. */
    @Test
    void directModeSaysWhatToChange() {
        Throwable error = assertThrows(Exception.class, () -> start("direct").close());
        while (error.getCause() != null) {
            error = error.getCause();
        }
        String text = error.toString();
        assertTrue(text.contains("use ConnectionMode.Gateway (.NET) or gatewayMode() (Java)"), text);
    }
}
