; map, mapv
(map inc [1 2 3]) => [2 3 4]
(map inc nil) => []
(map inc []) => []
(map inc #{3 1 2}) => [2 3 4]
(map first {:b 1 :a 2}) => [:a :b]
(map identity "añb") => ["a" "ñ" "b"]
(map :a [{:a 1} {"a" 2} {} nil]) => [1 2 nil nil]
(map :a [{"a" 1} {"a" 2}]) => [1 2]
(map :a [{"a" 1 :a 2} {"a" 3}]) => [2 3]
(map {:x 1} [:x :y]) => [1 nil]
(map #{1 2} [1 3]) => [1 nil]
(map + [1 2 3] [10 20]) => [11 22]
(map vector [1 2] [:a :b] "xy") => [[1 :a "x"] [2 :b "y"]]
(mapv inc [1 2]) => [2 3]
(mapv inc nil) => []
(map 5 [1]) !! not callable
(map inc 5) !! map: expects a collection, got an integer
(map inc ["a"]) !! inc: expects a number, got a string
(map :a [1]) !! cannot look up
(mapv inc :x) !! map: expects a collection, got a keyword
(map [1 2] inc) !! map: expects a collection, got a function
; pluck
(pluck :a [{:a 1} {:a 2}]) => [1 2]
(pluck "a" [{:a 1} {"a" 2}]) => [1 2]
(pluck [:a :b] [{:a {:b 1}} {:a nil}]) => [1 nil]
(pluck :a 3) !! pluck: expects a collection
; filter, filterv, remove
(filter even? [1 2 3 4]) => [2 4]
(filter :on [{:on true} {:on false} {:on nil} {:on 0} {}]) => [{:on true} {:on 0}]
(filter :on [{"on" true} {"on" false}]) => [{"on" true}]
(filter (fn [[k v]] (> v 1)) {:a 1 :b 2}) => [[:b 2]]
(filter #{1 2} [1 5 2]) => [1 2]
(filter identity [nil false 0 "" []]) => [0 "" []]
(filter even? nil) => []
(filterv even? [1 2]) => [2]
(filterv even? #{1 2 4}) => [2 4]
(filter even? 4) !! filter: expects a collection, got an integer
(filter 1 [1]) !! not callable
(filter even? ["a"]) !! even?: expects an integer, got a string
(filterv even? 4) !! expects a collection
(remove even? [1 2 3]) => [1 3]
(remove :on [{:on true} {:on nil} {}]) => [{:on nil} {}]
(remove nil? [1 nil 2]) => [1 2]
(remove even? 4) !! remove: expects a collection
; keep, map-indexed, keep-indexed, mapcat
(keep parse-long ["1" "x" "2"]) => [1 2]
(keep :a [{:a false} {:a nil} {:a 1}]) => [false 1]
(keep :a nil) => []
(keep :a 1) !! keep: expects a collection
(map-indexed vector ["a" "b"]) => [[0 "a"] [1 "b"]]
(map-indexed (fn [i x] (* i x)) [5 6]) => [0 6]
(map-indexed vector nil) => []
(map-indexed inc [1]) !! expects 1 argument, got 2
(keep-indexed (fn [i x] (when (even? i) x)) [:a :b :c]) => [:a :c]
(keep-indexed (fn [i x] nil) [1 2]) => []
(keep-indexed vector 1) !! expects a collection
(mapcat :tags [{:tags [1 2]} {:tags nil} {:tags [3]}]) => [1 2 3]
(mapcat reverse [[1 2] [3 4]]) => [2 1 4 3]
(mapcat vector [1 2] [:a :b]) => [1 :a 2 :b]
(mapcat inc [1]) !! mapcat: expects a collection, got an integer
; concat, flatten
(concat [1] [2 3] #{4}) => [1 2 3 4]
(concat) => []
(concat nil nil) => []
(concat {:a 1} [2]) => [[:a 1] 2]
(concatv [1] [2]) => [1 2]
(concatv) => []
(concat [1] 2) !! concat: expects a collection, got an integer
(concatv 1) !! concat: expects a collection
(flatten [1 [2 [3 []]] nil]) => [1 2 3 nil]
(flatten [{:a [1]} #{1}]) => [{:a [1]} #{1}]
(flatten nil) => []
(flatten "ab") !! flatten: expects a vector, got a string
; distinct, distinct-by, dedupe
(distinct [1 2 1 3 2]) => [1 2 3]
(distinct [1 1.0 "1" true]) => [1 "1" true]
(distinct [[1] [1] {:a 1} {:a 1} #{1} #{1}]) => [[1] {:a 1} #{1}]
(distinct nil) => []
(distinct {:a 1}) !! distinct: expects a vector, got a map
(distinct-by :a [{:a 1 :b 1} {:a 1} {:a 2}]) => [{:a 1 :b 1} {:a 2}]
(distinct-by even? [1 2 3 4]) => [1 2]
(distinct-by :a 7) !! distinct-by: expects a collection
(dedupe [1 1 2 2 1]) => [1 2 1]
(dedupe [nil nil false]) => [nil false]
(dedupe []) => []
(dedupe 1) !! dedupe: expects a collection
; reverse, interleave, interpose, zip
(reverse [1 2 3]) => [3 2 1]
(reverse "abc") => ["c" "b" "a"]
(reverse nil) => []
(reverse 1) !! reverse: expects a collection
(interleave [1 2] [:a :b :c]) => [1 :a 2 :b]
(interleave [1] []) => []
(interleave) => []
(interleave [1] 2) !! interleave: expects a collection
(interpose 0 [1 2 3]) => [1 0 2 0 3]
(interpose 0 []) => []
(interpose 0 [1]) => [1]
(interpose 0 1) !! interpose: expects a collection
(zip [1 2] [:a :b :c]) => [[1 :a] [2 :b]]
(zip [1] [2] [3]) => [[1 2 3]]
(zip) => []
(zip [1] 2) !! zip: expects a collection
; partition, partition-all, partition-by
(partition 2 [1 2 3 4 5]) => [[1 2] [3 4]]
(partition 2 1 [1 2 3]) => [[1 2] [2 3]]
(partition 3 3 [0 0] [1 2 3 4]) => [[1 2 3] [4 0 0]]
(partition 2 2 [] [1 2 3]) => [[1 2] [3]]
(partition 2 nil) => []
(partition 0 [1]) !! partition: sizes must be positive
(partition 2) !! partition
(partition-all 2 [1 2 3]) => [[1 2] [3]]
(partition-all 2 1 [1 2 3]) => [[1 2] [2 3] [3]]
(partition-all 2 []) => []
(partition-all 0 [1]) !! sizes must be positive
(partition-by odd? [1 3 2 4 5]) => [[1 3] [2 4] [5]]
(partition-by :a [{:a 1} {:a 1} {:a 2}]) => [[{:a 1} {:a 1}] [{:a 2}]]
(partition-by odd? []) => []
(partition-by odd? 5) !! partition-by: expects a collection
